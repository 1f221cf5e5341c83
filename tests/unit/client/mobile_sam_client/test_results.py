"""Lazy masks and pictures, notebook display and repr."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import Embedding, Engine, Everything, Info, NotThisService, Record, Segmentation, Weights
from tests.unit.client.mobile_sam_client.fake_service import mask_with_area, png, rle

WEIGHTS = Weights("builtin", "1" * 64, True, "A note.")
IMAGE: dict[str, Any] = {
    "image_id": "the id",
    "width": 6,
    "height": 4,
    "weights": WEIGHTS,
    "engine": Engine("one", "two"),
    "model_version": 1,
}


def segmentation(**fields) -> Segmentation:
    defaults: dict[str, Any] = {"rle": rle(mask_with_area(3)), "area": 3, "score": 0.12345, "box_xyxy": (0, 0, 3, 1)}
    return Segmentation(**IMAGE, **{**defaults, **fields})


def record() -> Record:
    boxes: dict[str, Any] = {"rle": rle(mask_with_area(5)), "bbox_xywh": (0, 0, 5, 1), "crop_box": (0, 0, 6, 4)}
    return Record(area=5, predicted_iou=0.9, stability_score=0.8, point_coords=((1.0, 2.0),), **boxes)


@pytest.mark.parametrize("make_result", [segmentation, record])
def test_mask_is_decoded_once_in_row_order(make_result):
    one = make_result()
    assert one.mask is one.mask
    assert (one.mask.dtype, one.mask.shape) == (bool, (4, 6))
    assert one.mask.flags.c_contiguous
    assert (one.mask == mask_with_area(one.area)).all()


def test_empty_mask_has_no_pixels():
    assert not segmentation(rle=rle(mask_with_area(0)), area=0, box_xyxy=(0, 0, 0, 0)).mask.any()


@pytest.mark.parametrize(
    "fields",
    [{"rle": {"size": [4, 6], "counts": "garbage~~"}}, {"area": 4}, {"rle": {"size": [4, 6], "counts": 5}}],
    ids=["malformed", "wrong area", "not a string"],
)
def test_malformed_rle_is_rejected_on_access(fields):
    damaged = segmentation(**fields)
    with pytest.raises(NotThisService, match="expected a mask"):
        _ = damaged.mask


def test_picture_is_opened_on_access():
    shown = segmentation(picture_png=png(7, "RGBA")).image
    assert shown is not None
    assert (shown.mode, shown.size) == ("RGBA", (6, 4))
    assert segmentation().image is None


def test_notebook_shows_picture_or_mask():
    assert segmentation(picture_png=png())._repr_png_() == png()
    for one in (segmentation(), record()):
        with Image.open(io.BytesIO(one._repr_png_())) as shown:
            assert (np.asarray(shown) == one.mask).all()


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (segmentation(), "Segmentation(score=0.123, area=3, box_xyxy=(0, 0, 3, 1), width=6, height=4)"),
        (
            segmentation(candidates=(segmentation(),) * 3),
            "Segmentation(score=0.123, area=3, box_xyxy=(0, 0, 3, 1), width=6, height=4, candidates=3)",
        ),
        (record(), "Record(area=5, bbox_xywh=(0, 0, 5, 1), predicted_iou=0.900, stability_score=0.800)"),
        (Everything(**IMAGE, masks=[record()]), "Everything(1 masks, width=6, height=4)"),
        (Embedding(**IMAGE, file=b"x" * 1000), "Embedding(image_id='the id', width=6, height=4)"),
        (WEIGHTS, "Weights(name='builtin', trained=True)"),
        (
            Info("1", WEIGHTS, Engine("one", "two"), False, 1, 2, 3, (4,)),
            "Info(version='1', weights=Weights(name='builtin', trained=True), engine=Engine(encoder='one', "
            "decoder='two'), key_needed=False, max_body_bytes=1, max_image_pixels=2, max_objects=3, "
            "model_versions=(4,))",
        ),
    ],
    ids=["object", "candidates", "record", "everything", "embedding", "weights", "info"],
)
def test_repr_is_one_line(result, shown):
    assert repr(result) == shown
