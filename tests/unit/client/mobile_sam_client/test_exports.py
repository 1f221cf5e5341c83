"""Results as types of other libraries, read back by those libraries."""

import json
import sys
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.test_polygons import RINGS, area
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


def test_error_without_supervision_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(ImportError, match=r"pip install '\./client\[supervision\]'$"):
        segmentation(RINGS).to_supervision()


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
    return (
        [geometry["coordinates"]]
        if geometry["type"] == "Polygon"
        else list(geometry["coordinates"])
    )


def test_geojson_rings_are_closed_and_oriented_as_rfc_7946_says():
    for feature in geojson(everything(*MASKS, RINGS)):
        for outer, *holes in polygons_of(feature):
            assert all(len(ring) >= 4 and ring[0] == ring[-1] for ring in [outer, *holes])
            assert area(np.array(outer[:-1])) > 0
            assert all(area(np.array(hole[:-1])) < 0 for hole in holes)


def test_unknown_kind_of_label_studio_results_is_rejected():
    with pytest.raises(
        ValueError, match=r"^kind: expected brushlabels or polygonlabels, got 'keypointlabels'$"
    ):
        segmentation(RINGS).to_label_studio("Balloon", kind="keypointlabels")  # type: ignore[arg-type]
