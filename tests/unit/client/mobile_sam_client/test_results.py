"""Lazy masks and pictures, files, notebook display and repr."""

import io
import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import Embedding, Engine, Everything, NotThisService, Record, Segmentation, Weights
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


TWO, THREE, FIVE = (mask_with_area(area) for area in (2, 3, 5))


def mask_fields(mask: np.ndarray, score: float) -> dict[str, Any]:
    """Return the fields of a mask, (H, W) bool, on a grey image."""
    rows, columns = np.nonzero(mask)
    box = (int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1) if mask.any() else (0,) * 4
    photo = partial(np.full, (*mask.shape, 3), 100, np.uint8)
    return {"rle": rle(mask), "area": int(mask.sum()), "box_xyxy": box, "photo": photo, "score": score}


def segmentation(mask: np.ndarray = THREE, **fields) -> Segmentation:
    return Segmentation(**{**IMAGE, **mask_fields(mask, 0.12345), **fields})


def record(mask: np.ndarray = FIVE) -> Record:
    fields = mask_fields(mask, 0.9)
    return Record(**fields, stability_score=0.8, point_coords=((1.0, 2.0),), crop_box=(0, 0, 6, 4))


def everything(*masks: np.ndarray, size_hw: tuple[int, int] = (4, 6)) -> Everything:
    height, width = masks[0].shape if masks else size_hw
    image, photo = {**IMAGE, "height": height, "width": width}, partial(np.full, (height, width, 3), 100, np.uint8)
    return Everything(**image, masks=[record(mask) for mask in masks], photo=photo)


FOUND = everything(FIVE, TWO)


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
    found = FOUND
    assert (len(found), [one.area for one in found]) == (2, [5, 2])
    assert (found[-1].area, [one.area for one in found[:1]]) == (2, [5])
    assert not everything()


@pytest.mark.parametrize("make_result", [segmentation, record, lambda: FOUND])
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
    found = FOUND
    found.save(str(tmp_path / "records.json"))
    assert json.loads((tmp_path / "records.json").read_bytes()) == [one.as_sam() for one in found]


@pytest.mark.parametrize(
    ("result", "expected"),
    [(segmentation(), r"\.png, \.npy, \.json"), (everything(FIVE), r"\.json")],
    ids=["mask", "all"],
)
def test_file_of_another_type_is_not_saved(tmp_path, result, expected):
    with pytest.raises(ValueError, match=rf"^path: expected a name that ends with {expected}, got '.*mask\.jpg'$"):
        result.save(tmp_path / "mask.jpg")
    assert not list(tmp_path.iterdir())


def test_polygons_honour_the_tolerance():
    found = segmentation(np.tri(4, 6, dtype=bool))
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
        (everything(FIVE), "Everything(1 masks, width=6, height=4)"),
        (Embedding(**IMAGE, file=b"x" * 1000), "Embedding(image_id='the id', width=6, height=4)"),
        (WEIGHTS, "Weights(name='builtin', trained=True)"),
    ],
    ids=["object", "candidates", "record", "everything", "embedding", "weights"],
)
def test_repr_is_one_line(result, shown):
    assert repr(result) == shown
