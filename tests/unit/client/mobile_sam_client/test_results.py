"""Results: masks and pictures when they are read, and how they show themselves."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import Embedding, Engine, Everything, Info, NotThisService, Record, Segmentation, Weights
from tests.unit.client.mobile_sam_client.fake_service import mask_of, png, rle

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
    given: dict[str, Any] = {"rle": rle(mask_of(3)), "area": 3, "score": 0.12345, "box_xyxy": (0, 0, 3, 1), **fields}
    return Segmentation(**IMAGE, **given)


def record() -> Record:
    boxes: dict[str, Any] = {"rle": rle(mask_of(5)), "bbox_xywh": (0, 0, 5, 1), "crop_box": (0, 0, 6, 4)}
    return Record(area=5, predicted_iou=0.9, stability_score=0.8, point_coords=((1.0, 2.0),), **boxes)


@pytest.mark.parametrize("of", [segmentation, record])
def test_a_mask_is_decoded_once_into_rows(of):
    one = of()
    assert one.mask is one.mask
    assert (one.mask.dtype, one.mask.shape) == (bool, (4, 6))
    assert one.mask.flags.c_contiguous
    assert (one.mask == mask_of(one.area)).all()


def test_an_empty_mask_is_empty():
    assert not segmentation(rle=rle(mask_of(0)), area=0, box_xyxy=(0, 0, 0, 0)).mask.any()


@pytest.mark.parametrize(
    "fields",
    [{"rle": {"size": [4, 6], "counts": "garbage~~"}}, {"area": 4}, {"rle": {"size": [4, 6], "counts": 5}}],
    ids=["damaged", "of another area", "no text"],
)
def test_run_lengths_that_are_none_are_refused_when_they_are_read(fields):
    damaged = segmentation(**fields)
    with pytest.raises(NotThisService, match="expected a mask"):
        _ = damaged.mask


def test_a_picture_is_opened_when_it_is_read():
    shown = segmentation(picture_png=png(7, "RGBA")).image
    assert shown is not None
    assert (shown.mode, shown.size) == ("RGBA", (6, 4))
    assert segmentation().image is None


def test_a_notebook_shows_the_picture_or_else_the_mask():
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
def test_results_show_themselves_in_a_line(result, shown):
    assert repr(result) == shown
