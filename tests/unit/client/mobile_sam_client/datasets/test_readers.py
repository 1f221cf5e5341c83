"""Readers of detection data sets: boxes, ids, classes and fields of all formats, and what is
wrong with files.
"""

import io
import json
from typing import Any

import pytest
import supervision

from mobile_sam_client._datasets import dataset as dataset_module
from mobile_sam_client._datasets.dataset import Dataset
from mobile_sam_client._datasets.readers import read_dataset
from mobile_sam_client._datasets.values import DatasetError
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture

BOX = [10, 5, 30, 25]
COCO: dict[str, Any] = {
    "info": {"year": 2026},
    "images": [{"id": 7, "file_name": "a.jpg", "width": 60, "height": 40, "license": 2}],
    "categories": [{"id": 3, "name": "cat", "supercategory": "animal"}],
    "annotations": [
        {
            "id": 9,
            "image_id": 7,
            "category_id": 3,
            "bbox": [10, 5, 20, 20],
            "iscrowd": 1,
            "by": "me",
        }
    ],
}
VOC = (
    "<annotation><filename>a.jpg</filename><size><width>60</width><height>40</height></size>"
    "<object><name>cat</name><difficult>1</difficult>"
    "<bndbox><xmin>11</xmin><ymin>6</ymin><xmax>30</xmax><ymax>25</ymax></bndbox></object></annotation>"
)
VALUE = {"x": 50, "y": 25, "width": 25, "height": 50}
RESULT = {
    "id": "r1",
    "type": "rectanglelabels",
    "value": {**VALUE, "rectanglelabels": ["cat"]},
    "meta": {"text": "hi"},
}
POINT = {
    "id": "r2",
    "type": "keypointlabels",
    "value": {"x": 50, "y": 25, "width": 1, "keypointlabels": ["nose"]},
}
CHOICE = {"id": "r3", "type": "choices", "value": {"choices": ["good"]}}
CSV = "image,x0,y0,x1,y1,label,id,by\na.jpg,10,5,30,25,cat,12,me\n"


def read(
    form: str, texts: dict[str, str], annotations: str | None = None, image: str = "images/a.jpg"
) -> Dataset:
    """Read a data set with one image."""
    contents = {image: b"", **{name: text.encode() for name, text in texts.items()}}
    return read_dataset(
        form, sorted(contents), lambda name: io.BytesIO(contents[name]), annotations
    )


def coco(**changes: list) -> str:
    return json.dumps({**COCO, **changes})


def label_studio(*results: dict, image: str = "/data/upload/1/0a1b2c3d-a.jpg") -> str:
    return json.dumps([{"id": 5, "data": {"image": image}, "annotations": [{"result": results}]}])


def objects(data: Dataset) -> list[tuple]:
    """Return image, shape, class, id and further fields of each object."""
    return [
        (name, each.shape, each.category["name"], each.fields.pop("id"), each.fields)
        for name, image in data.images.items()
        for each in image.objects
    ]


def test_coco_keeps_ids_classes_and_fields():
    data = read("coco", {"x.json": coco()})
    (found,) = objects(data)
    assert found[:4] == ("images/a.jpg", BOX, "cat", 9)
    assert (found[4]["iscrowd"], found[4]["by"]) == (1, "me")
    assert [*data.categories.values()] == [COCO["categories"][0]]
    assert data.images["images/a.jpg"].fields == COCO["images"][0]
    assert data.images["images/a.jpg"].request() == {
        "shapes": [BOX],
        "relative": False,
        "size_wh": [60, 40],
    }
    assert data.head == {"info": {"year": 2026}}


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("images/a.jpg", "labels/a.txt"),
        ("train/images/a.jpg", "train/labels/a.txt"),
        ("images/v/a.jpg", "labels/v/a.txt"),
    ],
)
@pytest.mark.parametrize(
    "names",
    ["names: [dog, cat]", "train: images\nnames:\n  0: dog\n  1: cat", "names: {1: cat}"],
)
def test_yolo_boxes_are_relative_and_class_numbers_are_ids(image, label, names):
    data = read("yolo", {label: "1 0.5 0.25 0.5 0.25 0.9\n\n", "data.yaml": names}, image=image)
    assert objects(data) == [(image, [0.25, 0.125, 0.75, 0.375], "cat", 1, {"source_score": 0.9})]
    assert [category["id"] for category in data.categories.values()] == [0, 1]
    assert data.images[image].relative
    assert not data.failures


def test_yolo_boxes_are_those_of_supervision(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(picture(1, kind="JPEG"))
    texts = {"labels/a.txt": "0 0.333333 0.375 0.333333 0.5\n", "data.yaml": "names: [cat]"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    other = supervision.DetectionDataset.from_yolo(
        *(str(tmp_path / name) for name in ("images", "labels", "data.yaml"))
    )
    ((_, _, detections),) = other
    ((_, shape, *_),) = objects(read("yolo", texts))
    assert [
        value * side for value, side in zip(shape, (60, 40, 60, 40), strict=True)
    ] == pytest.approx(detections.xyxy[0].tolist(), abs=1e-3)


def test_voc_pixels_are_counted_from_one():
    data = read("voc", {"Annotations/a.xml": VOC}, image="JPEGImages/a.jpg")
    assert objects(data) == [("JPEGImages/a.jpg", BOX, "cat", 1, {"difficult": "1"})]
    assert data.images["JPEGImages/a.jpg"].request()["size_wh"] == [60, 40]


@pytest.mark.parametrize(
    "image",
    ["/data/upload/1/0a1b2c3d-a.jpg", "/data/local-files/?d=images%2Fa.jpg", "s3://b/a.jpg"],
)
def test_label_studio_has_rectangles_and_key_points_in_per_cent(image):
    data = read("label-studio", {"x.json": label_studio(RESULT, POINT, CHOICE, image=image)})
    box, point = objects(data)
    assert box[:4] == ("images/a.jpg", [0.5, 0.25, 0.75, 0.75], "cat", 1)
    assert box[4] == {"source_id": "r1", "meta": {"text": "hi"}, "labels": ["cat"], "task": 5}
    assert point[1:3] == ([0.5, 0.25], "nose")
    assert not data.failures


def test_csv_has_boxes_points_and_further_columns():
    data = read("csv", {"x.csv": CSV})
    assert objects(data) == [("images/a.jpg", BOX, "cat", 12, {"by": "me"})]
    both = read("csv", {"x.csv": "image,x,y,x0,y0,x1,y1\na.jpg,3,4,,,,\na.jpg,,,1,2,3,4\n"})
    assert [each[1] for each in objects(both)] == [[3, 4], [1, 2, 3, 4]]


def test_ids_that_are_taken_or_no_numbers_are_replaced_and_kept():
    one = COCO["annotations"][0]
    data = read("coco", {"x.json": coco(annotations=[one, {**one}, {**one, "id": "x"}])})
    assert [(each[3], each[4].get("source_id")) for each in objects(data)] == [
        (9, None),
        (10, 9),
        (11, "x"),
    ]


IMAGE, ANNOTATION = COCO["images"][0], COCO["annotations"][0]


@pytest.mark.parametrize(
    ("form", "texts", "expected"),
    [
        (
            "coco",
            {"x.json": coco(images=[IMAGE, {**IMAGE, "id": 8}])},
            "listed twice; the objects were joined",
        ),
        (
            "yolo",
            {"labels/a.txt": "4 0.5 0.5 0.1 0.1", "d.yaml": "names: [cat]"},
            "class 4 is not listed",
        ),
    ],
    ids=["image twice", "class without a name"],
)
def test_what_was_changed_is_noted(form, texts, expected):
    (failure,) = read(form, texts).failures
    assert expected in failure["reason"]
    assert failure["changed"] is True


def test_what_was_left_out_is_not_called_a_change():
    (failure,) = read(
        "coco", {"x.json": coco(annotations=[{"image_id": 7, "category_id": 3}])}
    ).failures
    assert failure == {"file": "x.json", "object": 0, "reason": "bbox is missing"}


@pytest.mark.parametrize(
    ("form", "texts", "annotations", "expected"),
    [
        ("coco", {}, None, r"expected one \.json file .* got none"),
        (
            "coco",
            {"x.json": "{}", "y.json": "{}"},
            None,
            r"got 2 \(x.json, y.json\); name it by --annotations",
        ),
        ("coco", {"x.json": "{}"}, "../x.json", r"expected one \.json file \.\./x.json"),
        ("coco", {"x.json": '{"images": [1'}, None, "x.json: not valid JSON"),
        ("coco", {"x.json": "[" * 200_000}, None, "x.json: not valid JSON"),
        (
            "coco",
            {"x.json": "[]"},
            None,
            "expected COCO with the lists categories, images, annotations",
        ),
        (
            "coco",
            {"x.json": '{"images": [], "annotations": [], "categories": []}'},
            None,
            "no boxes or points",
        ),
        ("yolo", {"d.yaml": "names: [a"}, None, "d.yaml: not valid YAML"),
        (
            "yolo",
            {"d.yaml": "names: {99999999: a}"},
            None,
            "expected numbers of classes from 0 to 65535",
        ),
        ("voc", {}, None, "no boxes or points of the format voc"),
        ("label-studio", {"x.json": '[{"image": "a.jpg"}]'}, None, "exported as JSON"),
        (
            "csv",
            {"x.csv": "image,x0,y0\n"},
            None,
            "expected the columns image and x0, y0, x1, y1 or x, y",
        ),
        ("csv", {"x.csv": f'{CSV}"a'}, None, "x.csv: line 3: unexpected end of data"),
    ],
)
def test_data_set_that_cannot_be_read_is_an_error(form, texts, annotations, expected):
    with pytest.raises(DatasetError, match=expected):
        read(form, texts, annotations)


def test_file_that_is_too_large_or_not_text_is_an_error(monkeypatch):
    monkeypatch.setattr(dataset_module.Dataset.text, "__defaults__", (2**20,))
    with pytest.raises(DatasetError, match=r"x.json: expected at most 1 MiB"):
        read("coco", {"x.json": " " * (2**20 + 1)})
    with pytest.raises(DatasetError, match=r"x.json: byte 0 \(0xff\) is not UTF-8"):
        read_dataset("coco", ["x.json"], lambda _: io.BytesIO(b"\xff"))


ODD_VALUES = [
    None,
    True,
    -1,
    1.5,
    float("nan"),
    10**400,
    "",
    "1",
    "../a.jpg",
    [],
    {},
    [[1]],
    {"a": 1},
]


def places(value: Any, place: tuple = ()) -> list[tuple]:
    """Return the places of all members and items in a JSON document."""
    if isinstance(value, dict):
        entries: list[tuple] = list(value.items())
    else:
        entries = list(enumerate(value)) if isinstance(value, list) else []
    found = []
    for key, member in entries:
        found += [(*place, key), *places(member, (*place, key))]
    return found


def changed_at(document: Any, place: tuple, value: Any) -> Any:
    changed = json.loads(json.dumps(document))
    parent = changed
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("form", "document"),
    [
        ("coco", COCO),
        (
            "label-studio",
            json.loads(
                label_studio({**RESULT, "original_width": 60, "to_name": "image"}, POINT, CHOICE)
            ),
        ),
    ],
    ids=["coco", "label-studio"],
)
def test_odd_values_anywhere_are_read_or_reported(form, document):
    results = 0
    for place in places(document):
        for value in ODD_VALUES:
            text = json.dumps(changed_at(document, place, value))
            try:
                data = read(form, {"x.json": text})
            except DatasetError:
                continue
            results += 1
            shapes = [each.shape for image in data.images.values() for each in image.objects]
            json.dumps([shapes, data.failures], allow_nan=False)
    assert results > 100
