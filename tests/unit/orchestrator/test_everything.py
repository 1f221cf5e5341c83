"""Filtering and clean-up of automatic masks."""

from types import SimpleNamespace

import numpy as np
import pytest
from pycocotools import mask as coco

from orchestrator.everything import EDGE_MARGIN_PIXELS, is_truncated, record
from orchestrator.found import stable_masks_of_logits
from orchestrator.stages import Stages

OPTIONS = {"stability_score_thresh": 0.5, "stability_score_offset": 1.0, "min_mask_region_area": 0}
STAGES = Stages(lambda *_: None)
SIZE_HW = (100, 120)
WHOLE = (0, 0, 120, 100)


def logits(size_hw: tuple[int, int], *boxes: tuple[int, int, int, int]) -> np.ndarray:
    """Return logits of 10 inside the boxes x0, y0, x1, y1 and -10 elsewhere."""
    values = np.full(size_hw, -10, np.float32)
    for x0, y0, x1, y1 in boxes:
        values[y0:y1, x0:x1] = 10
    return values


def found(values: np.ndarray, crop=WHOLE, size_hw=SIZE_HW, score=0.9, **options):
    """Return the record of a mask by its logits in a crop; None if there is none."""
    point_xy = np.array([50.5, 40.25], np.float32)
    options = {**OPTIONS, **options}
    part = SimpleNamespace(upsample=lambda _: values, stages=STAGES)
    decoded = [(np.zeros((1, 256, 256), np.float32), np.array([score]))]
    masks = stable_masks_of_logits(
        part,  # type: ignore[arg-type]
        decoded,
        0.8,
        options["stability_score_offset"],
        options["stability_score_thresh"],
    )
    records = [
        record(mask, point_xy, crop=crop, size_hw=size_hw, options=options) for mask in masks
    ]
    return records[0] if records else None


CROP = (100, 50, 300, 250)


@pytest.mark.parametrize(
    ("box", "crop", "expected"),
    [
        pytest.param((150, 100, 200, 200), CROP, False, id="in the middle"),
        pytest.param((100 + EDGE_MARGIN_PIXELS, 100, 200, 200), CROP, True, id="near left"),
        pytest.param(
            (101 + EDGE_MARGIN_PIXELS, 100, 200, 200), CROP, False, id="one pixel off left"
        ),
        pytest.param((150, 50 + EDGE_MARGIN_PIXELS, 200, 200), CROP, True, id="near top"),
        pytest.param((150, 51 + EDGE_MARGIN_PIXELS, 200, 200), CROP, False, id="one pixel off top"),
        pytest.param((150, 100, 300 - EDGE_MARGIN_PIXELS, 200), CROP, True, id="near right"),
        pytest.param(
            (150, 100, 299 - EDGE_MARGIN_PIXELS, 200), CROP, False, id="one pixel off right"
        ),
        pytest.param((150, 100, 200, 250 - EDGE_MARGIN_PIXELS), CROP, True, id="near bottom"),
        pytest.param(
            (150, 100, 200, 249 - EDGE_MARGIN_PIXELS), CROP, False, id="one pixel off bottom"
        ),
        pytest.param((0, 0, 400, 500), (0, 0, 400, 500), False, id="crop is the image"),
        pytest.param(
            (0, 0, 100, 100), (0, 0, 300, 300), False, id="common corner of crop and image"
        ),
        pytest.param(
            (0, 0, 300, 100),
            (0, 0, 300, 300),
            True,
            id="left edge of the image and right edge of the crop",
        ),
        pytest.param(
            (30, 30, 395, 100), (10, 10, 395, 300), True, id="near two crop edges, one of the image"
        ),
        pytest.param(
            (50, 50, 395, 100), (10, 10, 395, 300), False, id="crop edge near the image edge"
        ),
    ],
)
def test_mask_near_a_crop_edge_inside_the_image_is_truncated(box, crop, expected):
    assert is_truncated(box, crop, (500, 400)) is expected


def test_record_has_the_official_keys_and_two_more():
    values = logits(SIZE_HW, (30, 40, 60, 70))
    values[40, 30:45], values[70, 30:45] = 0.5, -0.5
    made = found(values, score=0.87654)
    mask = values > 0
    assert np.array_equal(coco.decode(made.pop("segmentation")), mask)
    assert made == {
        "area": 900,
        "bbox": [30, 40, 30, 30],
        "predicted_iou": 0.8765,
        "point_coords": [[50.5, 40.25]],
        "stability_score": round(885 / 915, 4),
        "crop_box": [0, 0, 120, 100],
        "box": (30, 40, 60, 70),
        "changed": False,
    }


def test_record_of_a_crop_is_in_image_coordinates():
    made = found(logits((70, 80), (25, 25, 50, 45)), crop=(30, 20, 110, 90))
    wanted = np.zeros(SIZE_HW, bool)
    wanted[45:65, 55:80] = True
    assert np.array_equal(coco.decode(made["segmentation"]), wanted)
    assert made["segmentation"]["size"] == list(SIZE_HW)
    assert (made["bbox"], made["box"]) == ([55, 45, 25, 20], (55, 45, 80, 65))
    assert made["crop_box"] == [30, 20, 80, 70]


def test_record_of_a_tidied_mask_keeps_its_original_box():
    values = logits(SIZE_HW, (30, 40, 60, 70), (90, 80, 92, 82))
    values[50:52, 50:52] = -10
    made = found(values, min_mask_region_area=10)
    assert made["changed"] is True
    assert made["area"] == 900
    assert made["bbox"] == [30, 40, 30, 30]
    assert made["box"] == (30, 40, 92, 82)
    assert coco.area(made["segmentation"]) == 900
    untouched = found(values, min_mask_region_area=0)
    assert (untouched["changed"], untouched["area"]) == (False, 900)
    assert untouched["bbox"] == [30, 40, 62, 42]


def test_tidied_mask_of_a_crop_is_in_image_coordinates():
    values = logits((70, 80), (25, 25, 50, 45), (78, 68, 80, 70))
    made = found(values, crop=(30, 20, 110, 90), min_mask_region_area=10)
    wanted = np.zeros(SIZE_HW, bool)
    wanted[45:65, 55:80] = True
    assert np.array_equal(coco.decode(made["segmentation"]), wanted)
    assert (made["changed"], made["bbox"], made["area"]) == (True, [55, 45, 25, 20], 500)


def test_mask_may_be_the_last_pixel_of_the_image():
    made = found(logits(SIZE_HW, (119, 99, 120, 100)))
    assert (made["bbox"], made["area"]) == ([119, 99, 1, 1], 1)
    assert coco.decode(made["segmentation"])[99, 119]


def test_mask_with_a_score_that_is_not_above_the_threshold_is_dropped():
    values = logits(SIZE_HW, (30, 40, 60, 70))
    assert found(values, score=0.8) is None
    assert found(values, score=0.81) is not None


def test_unstable_mask_is_dropped():
    values = logits(SIZE_HW, (30, 40, 60, 70))
    values[40:55, 30:60] = 0.5
    assert found(values, stability_score_thresh=0.5)["stability_score"] == 0.5
    assert found(values, stability_score_thresh=0.51) is None
    assert (
        found(values, stability_score_thresh=0.51, stability_score_offset=0.4)["stability_score"]
        == 1
    )


def test_empty_or_truncated_mask_is_dropped():
    for value in (-10, -0.5):
        assert found(np.full(SIZE_HW, value, np.float32), stability_score_thresh=0.0) is None
    crop = (30, 20, 110, 90)
    assert found(logits((70, 80), (25, 25, 60, 45)), crop=crop) is None
    assert found(logits((70, 80), (25, 25, 59, 45)), crop=crop) is not None
    assert found(logits(SIZE_HW, (0, 0, 120, 50))) is not None
