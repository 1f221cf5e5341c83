"""Lazy masks and pictures, files, notebook display and repr."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import (
    Embedding,
    Engine,
    Everything,
    NotThisService,
    Record,
    Segmentation,
    Weights,
)
from tests.unit.client.mobile_sam_client.fake_service import mask_with_area, rle

WEIGHTS = Weights("builtin", "1" * 64, True, "A note.")
SERVICE: dict[str, Any] = {"weights": WEIGHTS, "engine": Engine("one", "two"), "model_version": 1}
IMAGE: dict[str, Any] = {"image_id": "the id", "width": 6, "height": 4, **SERVICE}
PHOTO = np.full((4, 6, 3), 100, np.uint8)
TWO, THREE, FIVE = (mask_with_area(area) for area in (2, 3, 5))


def mask_fields(mask: np.ndarray, score: float) -> dict[str, Any]:
    """Return the fields of a mask, (H, W) bool, on a grey image."""
    rows, columns = np.nonzero(mask)
    box = (
        (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1)
        if mask.any()
        else (0,) * 4
    )
    photo = partial(np.full, (*mask.shape, 3), 100, np.uint8)
    return {
        "rle": rle(mask),
        "area": int(mask.sum()),
        "box_xyxy": box,
        "photo": photo,
        "score": score,
    }


def segmentation(mask: np.ndarray = THREE, **fields) -> Segmentation:
    return Segmentation(**{**IMAGE, **mask_fields(mask, 0.12345), **fields})


def record(mask: np.ndarray = FIVE) -> Record:
    fields = mask_fields(mask, 0.9)
    return Record(**fields, stability_score=0.8, point_coords=((1.0, 2.0),), crop_box=(0, 0, 6, 4))


def everything(*masks: np.ndarray, size_hw: tuple[int, int] = (4, 6)) -> Everything:
    height, width = masks[0].shape if masks else size_hw
    image, photo = (
        {**IMAGE, "height": height, "width": width},
        partial(np.full, (height, width, 3), 100, np.uint8),
    )
    return Everything(**image, masks=[record(mask) for mask in masks], photo=photo)


FOUND = everything(TWO, FIVE)


@pytest.mark.parametrize("make_result", [segmentation, record])
def test_mask_is_decoded_once_in_row_order(make_result):
    one = make_result()
    assert one.mask is one.mask
    assert (one.mask.dtype, one.mask.shape) == (bool, (4, 6))
    assert one.mask.flags.c_contiguous
    assert (one.mask == mask_with_area(one.area)).all()


@pytest.mark.parametrize(
    "fields",
    [
        {"rle": {"size": [4, 6], "counts": "garbage~~"}},
        {"area": 4},
        {"rle": {"size": [4, 6], "counts": 5}},
    ],
)
def test_malformed_rle_is_rejected_on_access(fields):
    damaged = segmentation(**fields)
    with pytest.raises(NotThisService, match="expected a mask"):
        _ = damaged.mask


@pytest.mark.parametrize("make_result", [segmentation, record, lambda: FOUND])
def test_overlay_colours_the_pixels_of_the_masks_alone(make_result):
    found = make_result()
    drawn = np.asarray(found.overlay())
    inside = np.any(
        [one.mask for one in (found if isinstance(found, Everything) else [found])], axis=0
    )
    assert ((drawn != PHOTO).any(axis=-1) == inside).all()


@pytest.mark.parametrize("make_result", [segmentation, record])
def test_cutout_is_transparent_outside_the_mask(make_result):
    found = make_result()
    cut = np.asarray(found.cutout())
    assert (cut[..., :3] == PHOTO).all()
    assert (cut[..., 3] == 255 * found.mask).all()


def test_mask_is_saved_as_picture_array_or_annotation(tmp_path):
    found = segmentation()
    for suffix in ("png", "NPY", "json"):
        found.save(tmp_path / f"mask.{suffix}")
    with Image.open(tmp_path / "mask.png") as picture:
        assert (np.asarray(picture) == found.mask).all()
    assert (np.load(tmp_path / "mask.NPY") == found.mask).all()
    annotation = {"segmentation": found.rle, "area": 3, "bbox": [0, 0, 3, 1], "score": 0.12345}
    assert json.loads((tmp_path / "mask.json").read_bytes()) == annotation


def test_file_of_another_type_is_not_saved(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"^path: expected a name that ends with \.png, \.npy, \.json, got '.*\.jpg'$",
    ):
        segmentation().save(tmp_path / "mask.jpg")
    with pytest.raises(ValueError, match=r"^path: expected a name that ends with \.json, got "):
        everything(FIVE).save(tmp_path / "all.png")


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            segmentation(),
            "Segmentation(score=0.123, area=3, box_xyxy=(0, 0, 3, 1), width=6, height=4)",
        ),
        (
            record(),
            "Record(area=5, bbox_xywh=(0, 0, 5, 1), predicted_iou=0.900, stability_score=0.800)",
        ),
        (everything(FIVE), "Everything(1 masks, width=6, height=4)"),
        (Embedding(**IMAGE, file=b"x" * 1000), "Embedding(image_id='the id', width=6, height=4)"),
        (WEIGHTS, "Weights(name='builtin', trained=True)"),
    ],
)
def test_repr_is_one_line(result, shown):
    assert repr(result) == shown
