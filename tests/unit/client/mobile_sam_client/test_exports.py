"""Results as types of other libraries, read back by those libraries."""

import importlib
import itertools
import json
import sys
from typing import Any

import numpy as np
import pytest
import supervision
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.test_polygons import NOISE, RINGS, area
from tests.unit.client.mobile_sam_client.test_results import everything, segmentation

EMPTY = np.zeros((120, 160), bool)
TWO_BLOCKS = EMPTY.copy()
TWO_BLOCKS[10:30, 20:50] = TWO_BLOCKS[100:120, 100:160] = True
MASKS = [RINGS, EMPTY, TWO_BLOCKS]


def test_detections_have_masks_boxes_and_scores():
    detections = everything(*MASKS).to_supervision(class_id=3)
    assert detections.mask is not None
    assert (np.asarray(detections.mask) == MASKS).all()
    assert detections.xyxy.tolist() == [[21, 11, 120, 110], [0, 0, 0, 0], [20, 10, 160, 120]]
    assert detections.confidence == pytest.approx([0.9] * 3)
    assert detections.class_id is not None
    assert detections.class_id.tolist() == [3, 3, 3]
    assert detections.area.tolist() == [mask.sum() for mask in MASKS]


def test_detections_of_one_mask_can_be_merged_and_drawn():
    detections = supervision.Detections.merge(
        [segmentation(RINGS).to_supervision(), segmentation(TWO_BLOCKS).to_supervision()]
    )
    assert (len(detections), detections.class_id) == (2, None)
    scene = np.zeros((*EMPTY.shape, 3), np.uint8)
    drawn = supervision.MaskAnnotator(color_lookup=supervision.ColorLookup.INDEX).annotate(scene, detections)
    assert (drawn.any(axis=-1) == RINGS | TWO_BLOCKS).all()


def test_detections_may_be_none():
    detections = everything(size_hw=(120, 160)).to_supervision(class_id=0)
    assert len(detections) == 0
    assert detections.xyxy.shape == (0, 4)
    assert len(detections[detections.confidence > 0.5]) == 0


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("supervision", "supervision", lambda: segmentation(RINGS).to_supervision()),
        ("cvat_sdk", "cvat", lambda: importlib.import_module("mobile_sam_client.cvat")),
    ],
    ids=["supervision", "CVAT"],
)
def test_error_without_optional_package_names_the_extra(monkeypatch, package, extra, use):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'mobile-sam-client\[{extra}\]'$"):
        use()


def test_coco_annotations_are_read_by_pycocotools():
    annotations = everything(*MASKS).to_coco(image_id=7, category_id=2, first_id=10)
    coco = COCO()
    coco.dataset = {
        "images": [{"id": 7, "width": 160, "height": 120}],
        "categories": [{"id": 2, "name": "object"}],
        "annotations": json.loads(json.dumps(annotations)),
    }
    coco.createIndex()
    for annotation_id, mask in enumerate(MASKS, 10):
        annotation = coco.anns[annotation_id]
        assert (coco.annToMask(annotation).astype(bool) == mask).all()
        assert annotation["area"] == mask.sum()
        assert (annotation["score"], annotation["stability_score"]) == (0.9, 0.8)
    assert coco.anns[10]["bbox"] == [21, 11, 99, 99]
    assert len(coco.loadRes(segmentation(RINGS).to_coco(image_id=7, category_id=2)).anns) == 1


def geojson(result) -> list[dict[str, Any]]:
    """Return the features after a round trip through JSON."""
    collection = json.loads(json.dumps(result.to_geojson(tolerance=0), allow_nan=False))
    assert (collection["type"], set(collection)) == ("FeatureCollection", {"type", "features"})
    for feature in collection["features"]:
        assert (feature["type"], set(feature)) == ("Feature", {"type", "geometry", "properties"})
    return list(collection["features"])


def polygons_of(feature: dict[str, Any]) -> list[list[list[list[int]]]]:
    geometry = feature["geometry"]
    if geometry is None:
        return []
    return [geometry["coordinates"]] if geometry["type"] == "Polygon" else list(geometry["coordinates"])


def fill(polygons: list[list[list[list[int]]]], size_hw: tuple[int, ...]) -> np.ndarray:
    """Return (H, W) bool: the pixels whose centre is inside by the even-odd rule."""
    crossings = np.zeros((size_hw[0], size_hw[1] + 1), int)
    for ring in (ring for polygon in polygons for ring in polygon):
        for (x, y), (next_x, next_y) in itertools.pairwise(ring):
            assert x == next_x or y == next_y
            crossings[min(y, next_y) : max(y, next_y), x] += 1
    inside: np.ndarray = np.cumsum(crossings, axis=1)[:, :-1] % 2 == 1
    return inside


@pytest.mark.parametrize("mask", [*NOISE, *MASKS])
def test_geojson_is_filled_to_the_mask(mask):
    (feature,) = geojson(segmentation(mask))
    assert (fill(polygons_of(feature), mask.shape) == mask).all()


def test_geojson_rings_are_closed_and_oriented_as_rfc_7946_says():
    for feature in geojson(everything(*MASKS, RINGS)):
        for outer, *holes in polygons_of(feature):
            assert all(len(ring) >= 4 and ring[0] == ring[-1] for ring in [outer, *holes])
            assert area(np.array(outer[:-1])) > 0
            assert all(area(np.array(hole[:-1])) < 0 for hole in holes)


def test_geojson_geometry_fits_the_number_of_polygons():
    ring, empty, blocks = geojson(everything(RINGS & (np.mgrid[:120, :160][1] > 100), *MASKS[1:]))
    assert (ring["geometry"]["type"], empty["geometry"]) == ("Polygon", None)
    assert (blocks["geometry"]["type"], len(blocks["geometry"]["coordinates"])) == ("MultiPolygon", 2)
    assert blocks["properties"] == {"score": 0.9, "stability_score": 0.8, "area": int(TWO_BLOCKS.sum())}


def decode_brush(data: list[int]) -> np.ndarray:
    """Decode Label Studio's brush RLE to its flat values, as its page does."""
    bits = "".join(f"{byte:08b}" for byte in data)
    at = 0

    def read(size: int) -> int:
        nonlocal at
        at += size
        return int(bits[at - size : at], 2)

    count, word_size, sizes = read(32), read(5) + 1, [read(4) + 1 for _ in range(4)]
    values = np.zeros(count, np.uint8)
    start = 0
    while start < count:
        is_run, end = read(1), start + 1 + read(sizes[read(2)])
        values[start:end] = read(word_size) if is_run else [read(word_size) for _ in range(start, end)]
        start = end
    assert len(bits) - at <= 8
    return values


@pytest.mark.parametrize("mask", [*NOISE, *MASKS, ~EMPTY, np.ones((1, 1), bool), np.ones((300, 400), bool)])
def test_brush_decodes_to_the_mask(mask):
    (result,) = segmentation(mask).to_label_studio("Balloon")
    rgba = decode_brush(json.loads(json.dumps(result))["value"]["rle"]).reshape(*mask.shape, 4)
    assert (rgba == 255 * mask[..., None]).all()


def test_label_studio_results_name_label_tags_and_size():
    first, second = everything(*MASKS[:2]).to_label_studio("Balloon", from_name="brush", to_name="photo")
    assert first["value"].pop("rle")
    assert first.pop("id") != second["id"]
    assert first == {
        "type": "brushlabels",
        "from_name": "brush",
        "to_name": "photo",
        "original_width": 160,
        "original_height": 120,
        "image_rotation": 0,
        "value": {"format": "rle", "brushlabels": ["Balloon"]},
        "score": 0.9,
    }


def test_label_studio_polygons_are_in_percent_without_holes():
    results = segmentation(TWO_BLOCKS | RINGS).to_label_studio("Balloon", kind="polygonlabels", tolerance=0)
    for result in results:
        assert (result["type"], result["value"]["polygonlabels"]) == ("polygonlabels", ["Balloon"])
    rings = [np.array(result["value"]["points"]) * (1.6, 1.2) for result in results]
    exact = [outer for outer, *_ in segmentation(TWO_BLOCKS | RINGS).polygons(0)]
    assert all(np.allclose(ring, outer) for ring, outer in zip(rings, exact, strict=True))
    assert everything(EMPTY).to_label_studio("Balloon", kind="polygonlabels") == []


def test_unknown_kind_of_label_studio_results_is_rejected():
    with pytest.raises(ValueError, match=r"^kind: expected brushlabels or polygonlabels, got 'keypointlabels'$"):
        segmentation(RINGS).to_label_studio("Balloon", kind="keypointlabels")  # type: ignore[arg-type]


def test_exports_keep_no_decoded_masks():
    found = everything(*MASKS)
    found.to_supervision()
    found.to_geojson()
    found.to_label_studio("Balloon")
    assert not any("mask" in vars(each) for each in found)
