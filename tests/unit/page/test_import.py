"""Annotation files become projects, and what is not understood becomes a warning or one
sentence.
"""

import io
import json
import re
import zipfile
from typing import Any

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from tests.unit.page.formats import (
    CLASSES,
    FormatError,
    decode,
    encoded,
    iou,
    masks_of,
    project_of,
    read,
    rle,
    run,
    shapes,
    sizes_of,
    write,
)

SIZE = {"name": "a.jpg", "width": 160, "height": 120}
DISC = shapes(160, 120)["disc"]
RECTANGLE = np.zeros((120, 160), bool)
RECTANGLE[20:60, 30:81] = True


def coco(*annotations: dict, **document: object) -> dict[str, str]:
    annotations = tuple(
        {"image_id": 1, "category_id": 7, "bbox": [0, 0, 1, 1], **one} for one in annotations
    )
    # Fmt: skip.
    return {
        "coco.json": json.dumps(
            {
                "images": [{"id": 1, "file_name": "a.jpg", "width": 160, "height": 120}],
                "categories": [{"id": 7, "name": "cat"}],
                "annotations": annotations,
                **document,
            }
        )
    }


def labelme(*found: dict, **document: object) -> dict[str, str]:
    shapes = [{"label": "cat", "group_id": None, "shape_type": "polygon", **one} for one in found]
    fields = {
        "imagePath": "a.jpg",
        "imageWidth": 160,
        "imageHeight": 120,
        "imageData": None,
        "shapes": shapes,
    }
    return {"a.json": json.dumps({**fields, **document})}


def only_mask(files: dict, sizes: list[dict] | None = None) -> np.ndarray:
    project, warnings = read(files, sizes)
    assert warnings == []
    ((mask,),) = (masks_of(image) for image in project["images"])
    return mask


@pytest.mark.parametrize(("kind", "options"), [("coco", {}), ("coco-polygons", {"tolerance": 0})])
def test_coco_round_trip_is_exact(kind, options):
    project = project_of()
    again, warnings = read(write(kind, project, **options))
    assert (again, warnings) == (project, [])


def test_labelme_round_trip_is_exact():
    project = project_of()
    again, warnings = read(write("labelme", project, tolerance=0))
    assert warnings == []
    assert again["classes"] == CLASSES
    for image, found in zip(project["images"], again["images"], strict=True):
        assert found["name"] == image["name"]
        assert [one["rle"] for one in found["objects"]] == [one["rle"] for one in image["objects"]]
        assert [one["name"] for one in found["objects"]] == [
            one["name"] for one in image["objects"]
        ]


def test_yolo_round_trip_keeps_masks_but_for_lines_between_islands():
    project = project_of()
    again, warnings = read(write("yolo", project, tolerance=0), sizes_of(project))
    assert warnings == []
    assert again["classes"] == CLASSES
    for image, found in zip(project["images"], again["images"], strict=True):
        for one, before, after in zip(
            image["objects"], masks_of(image), masks_of(found), strict=True
        ):
            assert not (before & ~after).any()
            if one["name"].split(" ")[0] in ("disc", "hole", "single", "line", "whole"):
                assert np.array_equal(before, after), one["name"]


def test_coco_segmentations_of_all_kinds_are_read():
    flat = DISC.T.ravel()
    changes = np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist()
    counts = np.diff([0, *changes, flat.size]).tolist()
    assert np.array_equal(
        only_mask(coco({"segmentation": {"size": [120, 160], "counts": counts}})), DISC
    )
    assert np.array_equal(only_mask(coco({"segmentation": rle(DISC)})), DISC)
    ring = [30, 20, 81, 20, 81, 60, 30, 60]
    assert np.array_equal(only_mask(coco({"segmentation": ring})), RECTANGLE)
    other = [100, 70, 140, 70, 140, 110, 100, 110]
    both = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects([ring, other], 120, 160))).astype(
        bool
    )
    assert np.array_equal(only_mask(coco({"segmentation": [ring, other]})), both)


def test_slanted_coco_polygons_are_filled_as_by_pycocotools():
    polygons = np.random.default_rng(1).uniform(-20, 180, (5, 12)).round(2).tolist()
    project, _ = read(coco(*({"segmentation": [points]} for points in polygons)))
    for points, mask in zip(polygons, masks_of(project["images"][0]), strict=True):
        expected = coco_mask.decode(
            coco_mask.merge(coco_mask.frPyObjects([points], 120, 160))
        ).astype(bool)
        assert iou(mask, expected) > 0.97


def test_coco_boxes_without_masks_are_read_with_a_warning():
    project, warnings = read(
        coco({"bbox": [30, 20, 51, 40]}, {"bbox": [30, 20, 51, 40], "segmentation": []})
    )
    assert all(np.array_equal(mask, RECTANGLE) for mask in masks_of(project["images"][0]))
    assert warnings == ["an annotation has only a box: its mask is the whole box (2 times)"]


def test_coco_sizes_come_from_known_images_when_missing():
    files = coco({"segmentation": rle(DISC)}, images=[{"id": 1, "file_name": "a.jpg"}])
    assert np.array_equal(only_mask(files, [SIZE]), DISC)


HOSTILE_COCO = {
    "run lengths of another size": (
        {"segmentation": {"size": [120, 160], "counts": [5, 6]}},
        "add up to 11",
    ),
    "negative run lengths": (
        {"segmentation": {"size": [120, 160], "counts": [-5, 19205]}},
        "whole numbers from 0",
    ),
    "text run lengths": (
        {"segmentation": {"size": [120, 160], "counts": ["a"]}},
        "whole numbers from 0",
    ),
    "broken string": (
        {"segmentation": {"size": [120, 160], "counts": "~~~~~~~~~~~~~\u1234"}},
        "run lengths",
    ),
    "other size": (
        {"segmentation": {"size": [160, 120], "counts": [19200]}},
        "another size than the image",
    ),
    "two points": ({"segmentation": [[1, 2, 3, 4]]}, "at least three pairs"),
    "odd": ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "at least three pairs"),
    "not numbers": ({"segmentation": [[1, 2, 3, 4, 5, "6px"]]}, "at least three pairs"),
    "nested": ({"segmentation": [[[1, 2], [3, 4], [5, 6]]]}, "at least three pairs"),
    "no box": ({"segmentation": 5, "bbox": None}, "neither a mask nor a box"),
    "text box": ({"bbox": [0, 0, "a", 1]}, "neither a mask nor a box"),
    "unknown image": ({"image_id": 2}, "its image is not in the file"),
    "unknown category": ({"category_id": [7]}, "its category is no id"),
    "outside": ({"segmentation": [[200, 200, 300, 200, 300, 300]]}, "an empty annotation"),
}


def assert_damaged_are_left_out(document, sound: dict, hostile: dict[str, tuple[Any, str]]) -> None:
    """Read all damaged parts together with a sound one; each is left out with its warning."""
    project, warnings = read(document(sound, *(part for part, _ in hostile.values())))
    assert len(project["images"][0]["objects"]) == 1
    times = [re.search(r" \((\d+) times\)$", warning) for warning in warnings]
    left = [
        warning
        for warning, many in zip(warnings, times, strict=True)
        for _ in range(int(many[1]) if many else 1)
    ]
    for name, (_, message) in hostile.items():
        found = next((warning for warning in left if message in warning), None)
        assert found, name
        left.remove(found)
    assert left == []


def test_damaged_coco_annotations_are_left_out_with_a_warning():
    assert_damaged_are_left_out(coco, {"segmentation": rle(DISC)}, HOSTILE_COCO)


# Fmt: skip.
HOSTILE_DOCUMENTS = {
    "null": "null",
    "list": "[]",
    "number": "1e999999",
    "lists of lists": "[" * 100_000 + "]" * 100_000,
    "lists of nulls": '{"images": [null], "annotations": [null], "categories": [null, {}]}',
    "huge image": '{"images": [{"id": 1, "file_name": "a", "width": 65535, "height": 65535}], "annotations": []}',
    "no names": '{"images": [{"id": 1, "file_name": "..", "width": 5, "height": 5}], "annotations": []}',
    "prototype": '{"__proto__": {"images": []}, "shapes": [{"label": "__proto__"}], "imagePath": "__proto__"}',
    "labelme without size": '{"shapes": [], "imagePath": "b.png"}',
}


@pytest.mark.parametrize("document", HOSTILE_DOCUMENTS.values(), ids=HOSTILE_DOCUMENTS)
def test_hostile_documents_give_sentences_and_no_images(document):
    project, warnings = read({"x.json": document, "a.txt": ""}, [SIZE])
    assert [image["name"] for image in project["images"]] == ["a.jpg"]
    assert warnings
    assert not any("undefined" in warning or "\n" in warning for warning in warnings)


def test_too_complex_polygons_are_left_out():
    zigzag = np.stack([np.tile([0.0, 20000.0], 2000), np.linspace(0, 90, 4000)], 1).ravel().tolist()
    image = {"id": 1, "file_name": "a.jpg", "width": 20000, "height": 100}
    project, (warning,) = read(coco({"segmentation": [zigzag]}, images=[image]))
    assert project["images"][0]["objects"] == []
    assert "too many points" in warning


def test_labelme_polygons_and_rectangles_are_read():
    corners = [[30, 20], [80, 20], [80, 59], [30, 59]]
    assert np.array_equal(only_mask(labelme({"points": corners})), RECTANGLE)
    sides = {"points": [[81, 60], [30, 20]], "shape_type": "rectangle"}
    assert np.array_equal(only_mask(labelme(sides)), RECTANGLE)


def test_labelme_polygons_are_painted_as_by_opencv():
    polygons = np.random.default_rng(2).integers(0, 120, (5, 6, 2)).tolist()
    project, _ = read(labelme(*({"points": points} for points in polygons)))
    for points, mask in zip(polygons, masks_of(project["images"][0]), strict=True):
        expected = np.zeros((120, 160), np.uint8)
        cv2.fillPoly(expected, [np.array(points, np.int32)], (1,))
        assert iou(mask, expected.astype(bool)) > 0.98


def test_labelme_groups_are_one_object():
    first, second = [[1, 1], [9, 1], [9, 9]], [[21, 1], [29, 1], [29, 9]]
    project, _ = read(
        labelme(
            {"points": first, "group_id": 1}, {"points": second, "group_id": 1}, {"points": first}
        )
    )
    assert [mask.sum() for mask in masks_of(project["images"][0])] == [90, 45]


def test_labelme_images_lie_beside_their_files():
    (content,) = labelme(
        {"points": [[1, 1], [9, 1], [9, 9]]}, imagePath="..\\photos\\b c.jpg"
    ).values()
    project, _ = read({"/home/x/b c.json": content})
    assert project["images"][0]["name"] == "home/x/b c.jpg"


HOSTILE_SHAPES = {
    "circle": (
        {"shape_type": "circle", "points": [[1, 1], [2, 2]]},
        "a shape of type circle was left out",
    ),
    "two points": ({"points": [[1, 1], [2, 2]]}, "at least 3 points"),
    "no points": ({}, "at least 3 points"),
    "text": ({"points": [["1px", "1"]] * 3}, "at least 3 points"),
    "null label": ({"label": None}, "without a label"),
    "no mask": ({"shape_type": "mask", "points": [[0, 0], [1, 1]]}, "must be a PNG image"),
    "not base64": (
        {"shape_type": "mask", "points": [[0, 0], [1, 1]], "mask": "*"},
        "not valid Base64",
    ),
    "not a PNG": (
        {"shape_type": "mask", "points": [[0, 0], [1, 1]], "mask": "AAAA"},
        "not a PNG image",
    ),
}


def test_damaged_labelme_shapes_are_left_out_with_a_warning():
    assert_damaged_are_left_out(labelme, {"points": [[1, 1], [9, 1], [9, 9]]}, HOSTILE_SHAPES)


DATA_YAML = {
    "block list": "names:\n- cat\n- 'big ''dog'''\n- \"\\u00e4 # b\" # comment\nnc: 3\n",
    "block map": "nc: 3\nnames:\n  # classes\n  0: cat\n\n  2: 'ä # b'\n  1: big 'dog'\ntrain: x\n",
    "flow list": "names: [cat, 'big ''dog''', \"ä # b\"] # comment\n",
    "flow list of several lines": "names: [cat,\n  big 'dog', # comment\n  'ä # b',\n]\nnc: 3\n",
    "flow map": "names: {0: cat, 2: 'ä # b', '1': big 'dog'}\n",
}


@pytest.mark.parametrize("text", DATA_YAML.values(), ids=DATA_YAML)
def test_class_names_of_data_yaml_are_read(text):
    labels = "".join(f"{index} 0.1 0.1 0.5 0.1 0.5 0.5\n" for index in range(3))
    project, warnings = read({"data.yaml": text, "labels/a.txt": labels}, [SIZE])
    assert ([one["name"] for one in project["classes"]], warnings) == (
        ["cat", "big 'dog'", "ä # b"],
        [],
    )


def test_class_names_of_classes_txt_are_read():
    files = {"classes.txt": "cat\r\nbig dog\r\n", "a.txt": "1 0.5 0.5 0.2 0.2 0.9\r\n", "b.txt": ""}
    project, warnings = read(files, [SIZE, {**SIZE, "name": "b.jpg"}])
    assert [(one["id"], one["name"]) for one in project["classes"]] == [(1, "cat"), (2, "big dog")]
    (found,) = project["images"][0]["objects"]
    assert (found["score"], masks_of(project["images"][0])[0].sum()) == (0.9, 32 * 24)
    assert project["images"][1]["objects"] == []
    assert warnings == ["a label is only a box: its mask is the whole box"]


def test_yolo_labels_find_their_images_by_folder_or_name():
    sizes = [
        {**SIZE, "name": name} for name in ("x/images/train/a.jpg", "x/images/val/a.jpg", "c d.png")
    ]
    label = "0 0.1 0.1 0.5 0.1 0.5 0.5"
    files = {
        "x/labels/val/a.txt": label,
        "other/labels/c d.txt": label,
        "labels/a.txt": label,
        "train.txt": "x/a.jpg",
    }
    files["labels/b.txt"] = label
    files["classes.txt"] = "cat"
    project, warnings = read(files, sizes)
    assert [image["name"] for image in project["images"]] == ["x/images/val/a.jpg", "c d.png"]
    assert warnings == [
        "labels/a.txt: several images have this name",
        "labels/b.txt: add the image of this name first: YOLO labels need its size",
    ]


def test_two_images_of_one_name_are_not_mixed_up():
    label = "0 0.1 0.1 0.5 0.1 0.5 0.5"
    files = {"labels/train/a.txt": label, "labels/val/a.txt": label, "classes.txt": "cat"}
    project, warnings = read(files, [SIZE])
    assert [len(image["objects"]) for image in project["images"]] == [1]
    assert warnings == [
        "labels/val/a.txt: labels/train/a.txt and labels/val/a.txt are both taken for the image"
        " a.jpg"
    ]
    images = [{**SIZE, "name": name} for name in ("train/a.jpg", "train/a.png")]
    exact = coco(
        {"segmentation": rle(DISC)}, images=[{**SIZE, "id": 1, "file_name": "train/a.png"}]
    )
    project, warnings = read(exact, images)
    assert ([image["name"] for image in project["images"]], warnings) == (["train/a.png"], [])
    project, _ = read(
        coco({"segmentation": rle(DISC)}, images=[{**SIZE, "id": 1, "file_name": "val/a.jpg"}]),
        images,
    )
    assert [image["name"] for image in project["images"]] == ["val/a.jpg"]
    project, _ = read({"set/labels/train/a.txt": label, "classes.txt": "cat"}, images[:1])
    assert [image["name"] for image in project["images"]] == ["train/a.jpg"]


@pytest.mark.parametrize(
    "line",
    [
        "0 1 2",
        "x 0.1 0.1 0.5 0.5",
        "0.5 0.1 0.1 0.5 0.5",
        "-1 0 0 1 1",
        "0 nan 0 1 1",
        "0 10 20 30 40 50 60",
    ],
)
def test_damaged_yolo_labels_are_left_out_with_their_line(line):
    project, warnings = read({"a.txt": f"0 0.5 0.5 0.1 0.1\n{line}\n"}, [SIZE])
    assert len(project["images"][0]["objects"]) == 1
    assert project["images"][0]["isIncomplete"]
    assert warnings[0].startswith("a.txt: left out line 2: expected a class number and coordinates")


def test_image_whose_objects_were_all_left_out_is_incomplete():
    sound, _ = read({"a.txt": ""}, [SIZE])
    assert "isIncomplete" not in sound["images"][0]
    damaged, _ = read(coco({"bbox": None}))
    assert damaged["images"][0]["objects"] == []
    assert damaged["images"][0]["isIncomplete"]


def test_images_with_one_id_or_without_an_id_are_incomplete():
    entries = [
        {"id": 1, "file_name": "a.jpg", "width": 160, "height": 120},
        {"id": 1, "file_name": "b.jpg", "width": 160, "height": 120},
        {"file_name": "c.jpg", "width": 160, "height": 120},
        {"id": 2, "file_name": "d.jpg", "width": 160, "height": 120},
    ]
    document = {"images": entries, "categories": [], "annotations": []}
    project, _ = read({"coco.json": json.dumps(document)})
    incomplete = [image["name"] for image in project["images"] if image.get("isIncomplete")]
    assert incomplete == ["a.jpg", "b.jpg", "c.jpg"]


def test_one_damaged_file_does_not_stop_the_others():
    project, warnings = read(
        {"bad.json": "{", "latin.json": b'"\xe4"', **coco({"segmentation": rle(DISC)})}
    )
    assert len(project["images"][0]["objects"]) == 1
    assert warnings[0] == "bad.json: not valid JSON"
    assert warnings[1].startswith("latin.json: byte 1 is 0xe4: not text in UTF-8")


@pytest.mark.parametrize(
    "files", [coco({"segmentation": rle(DISC)}), labelme({"points": [[1, 1], [9, 1], [9, 9]]})]
)
def test_known_images_keep_their_names_and_sizes(files):
    project, warnings = read(
        files, [{**SIZE, "name": "my photos/a.jpg"}, {**SIZE, "name": "b.jpg"}]
    )
    assert ([image["name"] for image in project["images"]], warnings) == (["my photos/a.jpg"], [])
    try_other_size, warnings = read(
        {**files, "b.txt": ""}, [{**SIZE, "width": 161}, {**SIZE, "name": "b.jpg"}]
    )
    assert [image["name"] for image in try_other_size["images"]] == ["b.jpg"]
    assert "a.jpg: the size is 160 x 120 in the file, but should be 161 x 120" in warnings[0]


def coco_of_classes(count: int) -> dict[str, str]:
    return coco(
        {"segmentation": rle(DISC)},
        categories=[{"id": 7 + i, "name": f"c{i}"} for i in range(count)],
    )


def test_files_with_more_than_a_thousand_classes_are_refused():
    project, warnings = read(coco_of_classes(1000))
    assert (len(project["classes"]), warnings) == (1000, [])
    with pytest.raises(FormatError, match=r"coco\.json: at most 1000 classes can be read"):
        read(coco_of_classes(1001))


def test_project_takes_classes_with_their_ids_up_to_a_thousand_and_joins_those_of_one_name():
    classes = [{"id": 70 + i, "name": f"c{i}"} for i in range(998)]
    same = {"id": 70, "name": "other of the same id"}
    added = run("addClasses", classes=[classes[0], same, *classes[1:], {"id": 2000, "name": "c1"}])
    # Without the unused placeholder.
    assert added["names"] == [
        classes[0]["name"],
        same["name"],
        *(one["name"] for one in classes[1:]),
    ]
    ids = dict(added["ids"])
    assert all(ids[one["id"]] == one["id"] for one in classes[1:])
    assert (ids[70], ids[2000]) == (2001, 71)  # above all ids that the others have
    with pytest.raises(
        FormatError, match="the project would have 1001 classes, but at most 1000 are possible"
    ):
        run("addClasses", classes=[*classes, *({"id": 1, "name": name} for name in "xyz")])


def test_no_annotations_are_one_sentence():
    with pytest.raises(FormatError, match="no annotations of COCO"):
        read({"notes.md": "hello"})


def test_zip_files_are_unpacked():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/data.yaml", "names: [cat]\n")
        archive.writestr("set/labels/a.txt", "0 0.1 0.1 0.5 0.1 0.5 0.5\n")
        archive.writestr("set/images/a.jpg", b"not looked at")
    project, warnings = read({"set.ZIP": packed.getvalue()}, [{**SIZE, "name": "set/images/a.jpg"}])
    assert (project["classes"][0]["name"], warnings) == ("cat", [])
    assert masks_of(project["images"][0])[0].any()


ZIPS = {
    "coco": ("annotations/instances.json images/a.png images/b/c.JPG", "a.png b/c.JPG"),
    "coco in a folder": ("annotations/instances.json images/train/a.png", "train/a.png"),
    "yolo split": (
        "labels/train/a.txt labels/val/b/c.txt images/train/a.png images/val/b/c.webp",
        "a.png b/c.webp",
    ),
    "yolo equal names": (
        "labels/train/a.txt labels/val/a.txt images/train/a.png images/val/a.png",
        "train/a.png val/a.png",
    ),
    "voc": ("Annotations/a.xml JPEGImages/a.png SegmentationClass/a.png", "a.png"),
    "labelme": ("a.json a.png b/c.json b/c.png", "a.png b/c.png"),
    "labelme split": ("train/a.json train/a.png val/b.json val/b.png", "a.png b.png"),
    "label maps": (
        "classes.json classes/a.png instances/a.png images/a.png images/classes/b.png",
        "a.png classes/b.png",
    ),
    "from macOS": ("set/labels/a.txt set/images/a.png __MACOSX/set/images/._a.png", "set/a.png"),
    "whole project": ("project.json images/1/a.png", ""),
}
"""Paths in ZIP files, and the names of the images in them."""


@pytest.mark.parametrize(("paths", "names"), ZIPS.values(), ids=ZIPS)
def test_images_in_a_zip_have_the_names_of_their_annotations(paths, names):
    files = encoded(dict.fromkeys(paths.split(), b""))
    found = run("images", files=files, known=[])
    types = {"png": "image/png", "JPG": "image/jpeg", "webp": "image/webp"}
    assert found == [[name, types[name.rsplit(".", 1)[1]]] for name in names.split()]
    known = [{"name": name, "width": 9, "height": 9} for name, _ in found]
    assert run("images", files=files, known=known) == []


BOXES = {
    "coco": coco({"bbox": [30, 20, 51, 40]}),
    "yolo": {"labels/a.txt": f"0 {55.5 / 160} {40 / 120} {51 / 160} {40 / 120}"},
    "voc": {
        "a.xml": "<annotation><filename>a.jpg</filename><object><name>cat</name><bndbox>"
        "<xmin>31</xmin><ymin>21</ymin><xmax>81</xmax><ymax>60</ymax>"
        "</bndbox></object></annotation>"
    },
    "labelme": labelme({"shape_type": "rectangle", "points": [[30, 20], [81, 60]]}),
    "label-studio": {
        "tasks.json": json.dumps(
            [
                {
                    "data": {"image": "a.jpg"},
                    "annotations": [
                        {
                            "result": [
                                {
                                    "type": "rectanglelabels",
                                    "to_name": "image",
                                    "value": {
                                        "x": 100 * 30 / 160,
                                        "y": 100 * 20 / 120,
                                        "width": 100 * 51 / 160,
                                        "height": 100 * 40 / 120,
                                        "rectanglelabels": ["cat"],
                                    },
                                }
                            ]
                        }
                    ],
                }
            ]
        )
    },
}
"""The rectangle as a box in every format that has boxes."""


@pytest.mark.parametrize("form", BOXES)
def test_boxes_without_masks_are_marked_as_boxes(form):
    project, _ = read(BOXES[form], [SIZE])
    ((found,),) = (image["objects"] for image in project["images"])
    assert np.array_equal(decode(found["rle"]), RECTANGLE)
    assert found["isBox"] is True


def test_masks_that_look_like_boxes_are_not_marked_as_boxes():
    ring = [30, 20, 81, 20, 81, 60, 30, 60]
    polygon = {"points": [[30, 20], [81, 20], [81, 60], [30, 60]]}
    for files in (
        coco({"segmentation": [ring]}),
        coco({"segmentation": rle(RECTANGLE)}),
        labelme(polygon),
    ):
        project, _ = read(files, [SIZE])
        assert "isBox" not in project["images"][0]["objects"][0]
