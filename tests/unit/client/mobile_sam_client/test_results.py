"""Lazy masks and pictures, files, notebook display and repr."""

from __future__ import annotations

import io
import json
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


PHOTO = np.full((4, 6, 3), 100, np.uint8)


def mask_fields(area: int, **fields) -> dict[str, Any]:
    """Return the fields of a mask of some pixels in the first row."""
    return {"rle": rle(mask_with_area(area)), "area": area, "box_xyxy": (0, 0, area, 1), "photo": PHOTO.copy, **fields}


def segmentation(**fields) -> Segmentation:
    return Segmentation(**IMAGE, **{**mask_fields(3, score=0.12345), **fields})


def record(area: int = 5, **fields) -> Record:
    mask = {**mask_fields(area, score=0.9), **fields}
    return Record(**mask, stability_score=0.8, point_coords=((1.0, 2.0),), crop_box=(0, 0, 6, 4))


def everything(*areas: int) -> Everything:
    return Everything(**IMAGE, masks=[record(area) for area in areas], photo=PHOTO.copy)


@pytest.mark.parametrize("make_result", [segmentation, record])
def test_mask_is_decoded_once_in_row_order(make_result):
    one = make_result()
    assert one.mask is one.mask
    assert (one.mask.dtype, one.mask.shape) == (bool, (4, 6))
    assert one.mask.flags.c_contiguous
    assert (one.mask == mask_with_area(one.area)).all()


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


def test_records_have_the_names_of_segmentations_and_of_sam():
    one = record()
    assert (one.score, one.area, one.box_xyxy) == (0.9, 5, (0, 0, 5, 1))
    assert (one.predicted_iou, one.bbox_xywh) == (0.9, (0, 0, 5, 1))
    assert one.as_sam() == {
        "segmentation": one.rle,
        "area": 5,
        "bbox": [0, 0, 5, 1],
        "predicted_iou": 0.9,
        "point_coords": [[1.0, 2.0]],
        "stability_score": 0.8,
        "crop_box": [0, 0, 6, 4],
    }


def test_everything_is_a_sequence_of_records():
    found = everything(5, 2)
    assert (len(found), [one.area for one in found]) == (2, [5, 2])
    assert (found[-1].area, [one.area for one in found[:1]]) == (2, [5])
    assert not everything()


@pytest.mark.parametrize("make_result", [segmentation, record, lambda: everything(5, 2)])
def test_overlay_colours_the_pixels_of_the_masks_alone(make_result):
    found = make_result()
    drawn = np.asarray(found.overlay())
    inside = np.any([one.mask for one in (found if isinstance(found, Everything) else [found])], axis=0)
    assert ((drawn != PHOTO).any(axis=-1) == inside).all()


@pytest.mark.parametrize("make_result", [segmentation, record])
def test_cutout_is_transparent_outside_the_mask(make_result):
    found = make_result()
    cut = np.asarray(found.cutout())
    assert (cut[..., :3] == PHOTO).all()
    assert (cut[..., 3] == 255 * found.mask).all()


@pytest.mark.parametrize("name", ["overlay", "cutout"])
def test_picture_of_a_changed_image_is_rejected(name):
    with pytest.raises(ValueError, match=r"do not match|expected masks of"):
        getattr(segmentation(photo=lambda: PHOTO[:2]), name)()


def test_mask_is_saved_as_picture_array_or_annotation(tmp_path):
    found = segmentation()
    for suffix in ("png", "NPY", "json"):
        found.save(tmp_path / f"mask.{suffix}")
    with Image.open(tmp_path / "mask.png") as picture:
        assert (np.asarray(picture) == found.mask).all()
    assert (np.load(tmp_path / "mask.NPY") == found.mask).all()
    annotation = {"segmentation": found.rle, "area": 3, "bbox": [0, 0, 3, 1], "score": 0.12345}
    assert json.loads((tmp_path / "mask.json").read_bytes()) == annotation


def test_records_are_saved_with_sam_keys(tmp_path):
    found = everything(5, 2)
    found.save(str(tmp_path / "records.json"))
    assert json.loads((tmp_path / "records.json").read_bytes()) == [one.as_sam() for one in found]


@pytest.mark.parametrize(
    ("result", "expected"), [(segmentation(), r"\.png, \.npy, \.json"), (everything(5), r"\.json")], ids=["mask", "all"]
)
def test_file_of_another_type_is_not_saved(tmp_path, result, expected):
    with pytest.raises(ValueError, match=rf"^path: expected a name that ends with {expected}, got '.*mask\.jpg'$"):
        result.save(tmp_path / "mask.jpg")
    assert not list(tmp_path.iterdir())


def test_polygons_honour_the_tolerance():
    staircase = np.tri(4, 6, dtype=bool)
    found = segmentation(rle=rle(staircase), area=int(staircase.sum()))
    assert [[len(ring) for ring in polygon] for polygon in found.polygons(tolerance=0)] == [[10]]
    assert [[len(ring) for ring in polygon] for polygon in found.polygons(tolerance=1)] == [[3]]


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
        (everything(5), "Everything(1 masks, width=6, height=4)"),
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
