"""Up-sampling and encoding of masks."""

import io
import json
from typing import get_args

import cv2
import numpy as np
import orjson
import pytest
from PIL import Image
from pycocotools import mask as coco

from orchestrator import masks
from orchestrator.masks import (
    BitMask,
    ColumnMask,
    Mask,
    MaskPart,
    PixelMask,
    area_and_box,
    remove_small_regions,
)
from orchestrator.polygons import polygons
from orchestrator.problems import Rejected
from utils.api.requests import MaskFormat

SIZES = [(1, 1), (1, 50), (50, 1), (3, 5), (5, 8), (5, 9), (31, 47), (64, 64), (333, 501)]


def some(size_hw: tuple[int, int], count: int = 1) -> list[np.ndarray]:
    """Return smooth random masks."""
    height, width = size_hw
    noise = np.random.default_rng(height * width).standard_normal((count, 5, 5)).astype(np.float32)
    return [cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC) > 0 for part in noise]


def of_bits(pixels: np.ndarray) -> BitMask:
    """Return a mask as a GPU's decoder makes it."""
    area, (x0, y0, x1, y1) = area_and_box(pixels)
    return BitMask(np.packbits(pixels, axis=1), pixels.shape[1], area, (x0, y0, x1, y1))


def of_columns(pixels: np.ndarray) -> ColumnMask:
    """Return a mask as a GPU's decoder makes it for automatic masks."""
    area, (x0, y0, x1, y1) = area_and_box(pixels)
    return ColumnMask(np.packbits(pixels.T, axis=1), len(pixels), area, (x0, y0, x1, y1))


def encode(mask_format: str, *arrays: np.ndarray) -> bytes:
    """Return the mask part, the same for masks of pixels and of bits; a single mask is not wrapped
    in a list.
    """
    height, width = arrays[0].shape
    bodies = []
    for make in (PixelMask, of_bits, of_columns):
        part = MaskPart(mask_format, (height, width), None if len(arrays) == 1 else len(arrays))
        for pixels in arrays:
            part.add(make(pixels))
        bodies.append(b"".join(part.encode()))
    assert bodies[0] == bodies[1] == bodies[2]
    return bodies[0]


@pytest.mark.parametrize("size_hw", SIZES)
def test_masks_of_pixels_and_of_bits_have_the_same_content(size_hw):
    for pixels in (*some(size_hw, 3), np.zeros(size_hw, bool), np.ones(size_hw, bool)):
        masks_of_both: list[Mask] = [PixelMask(pixels), of_bits(pixels), of_columns(pixels)]
        for mask in masks_of_both:
            area, box = area_and_box(pixels)
            assert (mask.area, list(mask.box_xyxy)) == (area, box)
            assert np.array_equal(mask.inside, pixels)
            assert np.array_equal(mask.in_box(), pixels[box[1] : box[3], box[0] : box[2]])
            assert np.array_equal(mask.packed(), np.packbits(pixels, axis=1))
            height, width = size_hw
            for corner_xy, picture_hw in (((0, 0), size_hw), ((3, 5), (height + 6, width + 9))):
                picture = np.zeros(picture_hw, np.uint8, order="F")
                x, y = corner_xy
                picture[y : y + height, x : x + width] = pixels
                expected = coco.encode(picture)
                found = mask.rle(corner_xy, picture_hw)
                assert found == {
                    "size": expected["size"],
                    "counts": expected["counts"].decode(),
                }


def bilinear(values: np.ndarray, length: int, axis: int) -> np.ndarray:
    """Interpolate along one axis as torch.nn.functional.interpolate does with
    align_corners=False.
    """
    position = ((np.arange(length) + 0.5) * values.shape[axis] / length - 0.5).clip(0)
    low = position.astype(int)
    high = np.minimum(low + 1, values.shape[axis] - 1)
    share = np.expand_dims(position - low, 1 - axis)
    result: np.ndarray = values.take(low, axis) * (1 - share) + values.take(high, axis) * share
    return result


def official(logits: np.ndarray, frame_hw: tuple[int, int], size_hw: tuple[int, int]) -> np.ndarray:
    """Compute the official predictor's `postprocess_masks` in float64."""
    in_frame = bilinear(bilinear(logits.astype(np.float64), 1024, 0), 1024, 1)
    return bilinear(bilinear(in_frame[: frame_hw[0], : frame_hw[1]], size_hw[0], 0), size_hw[1], 1)


@pytest.mark.parametrize(
    ("frame_hw", "size_hw"),
    [
        pytest.param((683, 1024), (1200, 1800), id="larger"),
        pytest.param((683, 1024), (200, 300), id="smaller"),
        pytest.param((1024, 1024), (512, 512), id="half"),
        pytest.param((1024, 1024), (1024, 1024), id="same as the frame"),
        pytest.param((1024, 1), (4000, 3), id="tall"),
        pytest.param((1, 1024), (1, 5000), id="one row"),
        pytest.param((1024, 1024), (1, 1), id="one pixel"),
    ],
)
def test_upsample_matches_the_official_predictor(frame_hw, size_hw):
    logits = np.random.default_rng(0).normal(0, 10, (256, 256)).astype(np.float32)
    found, wanted = masks.upsample(logits, frame_hw, size_hw), official(logits, frame_hw, size_hw)
    assert found.shape == size_hw
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < 0.01
    assert ((found > 0) == (wanted > 0))[np.abs(wanted) > 0.01].all()


def test_upsample_is_the_same_with_and_without_the_reused_buffer(monkeypatch):
    generator = np.random.default_rng(0)
    for size_hw in ((30, 40), (30, 40), (40, 30), (1, 1), (1, 7), (7, 1), (300, 400), (300, 400)):
        logits = generator.normal(0, 10, (256, 256)).astype(np.float32)
        frame_hw = (768, 1024) if size_hw[0] < size_hw[1] else (1024, 768)
        reused = masks.upsample(logits, frame_hw, size_hw).copy()
        with monkeypatch.context() as patched:
            patched.setattr(masks, "MAX_REUSED_PIXELS", 0)
            assert np.array_equal(masks.upsample(logits, frame_hw, size_hw), reused)


def read_png(data: bytes) -> np.ndarray:
    """Read a picture of stacked masks by OpenCV, and check it by Pillow."""
    picture = Image.open(io.BytesIO(data))
    assert picture.mode == "1"
    read = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    assert np.array_equal(read, np.asarray(picture) * np.uint8(255))
    return read > 0


def read_rle(data: bytes) -> np.ndarray:
    found = orjson.loads(data)
    mask: np.ndarray = coco.decode(found)
    return mask.transpose(2, 0, 1) if isinstance(found, list) else mask


READ = {
    "json": orjson.loads,
    "npy": lambda data: np.load(io.BytesIO(data), allow_pickle=False),
    "png": read_png,
    "rle": read_rle,
}


@pytest.mark.parametrize("size_hw", SIZES)
@pytest.mark.parametrize("mask_format", READ)
def test_masks_are_read_back_unchanged(mask_format, size_hw):
    empty, full = np.zeros(size_hw, bool), np.ones(size_hw, bool)
    # Not contiguous.
    noise = (np.random.default_rng(0).random((2 * size_hw[0], size_hw[1] + 3)) > 0.5)[::2, 3:]
    for several in ([empty], [full], some(size_hw), [*some(size_hw, 3), empty, noise, full]):
        read = np.asarray(READ[mask_format](encode(mask_format, *several)))
        wanted = np.concatenate(several) if mask_format == "png" else np.stack(several)
        assert np.array_equal(read, wanted if len(several) > 1 else several[0])
        assert mask_format not in ("npy", "png") or read.dtype == bool


@pytest.mark.parametrize("size_hw", SIZES)
def test_rle_is_that_of_pycocotools_for_a_part_of_a_picture_too(size_hw):
    for mask in (np.zeros(size_hw, bool), np.ones(size_hw, bool), *some(size_hw, 3)):
        for padding in (((0, 0), (0, 0)), ((2, 0), (0, 3)), ((0, 1), (4, 0)), ((1, 2), (3, 4))):
            picture = np.pad(mask, padding)
            counts = coco.encode(np.asfortranarray(picture, np.uint8))["counts"].decode()
            corner_xy = padding[1][0], padding[0][0]
            found = masks.rle(mask, corner_xy, (picture.shape[0], picture.shape[1]))
            assert found == {"size": [*picture.shape], "counts": counts}


def test_json_mask_has_no_spaces():
    assert encode("json", np.eye(2, dtype=bool)) == b"[[1,0],[0,1]]"


def test_polygon_masks_are_their_polygons():
    several = some((31, 47), 3)
    assert json.loads(encode("polygon", *several)) == [polygons(mask) for mask in several]


@pytest.mark.parametrize("mask_format", get_args(MaskFormat))
def test_mask_list_with_one_mask_stays_a_list(mask_format):
    (mask,) = some((3, 5))
    made = MaskPart(mask_format, (3, 5), 1)
    made.add(PixelMask(mask))
    in_a_list, alone = b"".join(made.encode()), encode(mask_format, mask)
    if mask_format == "npy":
        assert np.load(io.BytesIO(in_a_list)).shape == (1, 3, 5)
    elif mask_format == "png":
        assert in_a_list == alone
    else:
        assert json.loads(in_a_list) == [json.loads(alone)]


def test_png_mask_with_too_many_rows_is_rejected():
    MaskPart("png", (50_000, 10), 20)
    with pytest.raises(Rejected) as caught:
        MaskPart("png", (50_000, 10), 21)
    assert (caught.value.status, caught.value.slug) == (422, "answer-too-large")
    assert caught.value.errors == [
        {
            "field": "mask_format",
            "expected": (
                "at most 1000000 rows in all masks together; ask for a format other than png"
            ),
            "got": "1050000 rows",
        }
    ]


def test_add_returns_the_size_of_the_mask():
    for mask_format in get_args(MaskFormat):
        made = MaskPart(mask_format, (40, 60), 2)
        sizes = [made.add(PixelMask(mask)) for mask in some((40, 60), 2)]
        if mask_format != "png":  # compressed at the end
            assert 0 <= len(b"".join(made.encode())) - sum(sizes) < 200, mask_format


def test_polygon_masks_with_too_many_rings_are_rejected(monkeypatch):
    lattice = np.zeros((40, 40), bool)
    lattice[::2, ::2] = True  # 400 separate pixels
    monkeypatch.setattr(masks, "MAX_RINGS", 1000)
    made = MaskPart("polygon", (40, 40), 3)
    made.add(PixelMask(lattice))
    made.add(PixelMask(lattice))
    with pytest.raises(Rejected) as caught:
        made.add(PixelMask(lattice))
    assert (caught.value.status, caught.value.slug) == (422, "answer-too-large")


@pytest.mark.parametrize("size_hw", SIZES)
def test_area_and_box_of_random_masks(size_hw):
    generator = np.random.default_rng(0)
    for share in (0.0, 0.001, 0.05, 0.5, 1.0):
        mask = generator.random(size_hw) < share
        ys, xs = np.nonzero(mask)
        box = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1] if len(ys) else [0, 0, 0, 0]
        area, found = masks.area_and_box(mask)
        assert (area, found) == (len(ys), box)
        assert {type(number) for number in (area, *found)} == {int}


def official_small_regions(mask: np.ndarray, min_area: int, mode: str) -> tuple[np.ndarray, bool]:
    """Copy of `remove_small_regions` in Segment Anything's `utils/amg.py`."""
    correct_holes = mode == "holes"
    working_mask = (correct_holes ^ mask).astype(np.uint8)
    n_labels, regions, stats, _ = cv2.connectedComponentsWithStats(working_mask, connectivity=8)
    sizes = stats[:, -1][1:]
    small_regions = [i + 1 for i, s in enumerate(sizes) if s < min_area]
    if len(small_regions) == 0:
        return mask, False
    fill_labels = [0, *small_regions]
    if not correct_holes:
        fill_labels = [i for i in range(n_labels) if i not in fill_labels]
        if len(fill_labels) == 0:
            fill_labels = [int(np.argmax(sizes)) + 1]
    return np.isin(regions, fill_labels), True


def check_tidied(mask: np.ndarray, min_area: int) -> tuple[bool, bool]:
    """Compare with the official generator; return whether holes were filled and islands removed."""
    filled, holes = official_small_regions(mask, min_area, "holes")
    wanted, islands = official_small_regions(filled, min_area, "islands")
    without_regions, changed = remove_small_regions(mask, min_area)
    assert np.array_equal(without_regions, wanted)
    assert changed == (holes or islands)
    return holes, islands


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "width", "largest_min_area"),
    [(50, 60, 60), (5, 6, 60), pytest.param(300, 400, 3000, id="windows")],
)
def test_small_regions_are_removed_as_by_the_official_generator(height, width, largest_min_area):
    generator = np.random.default_rng(0)
    kinds = set()
    for number in range(400):
        noise = generator.standard_normal(generator.integers(2, 30, 2)).astype(np.float32)
        mask = cv2.resize(
            noise, (width, height), interpolation=cv2.INTER_CUBIC
        ) > generator.uniform(-3, 3)
        if number % 2:  # far from some of the image's borders
            mask[: generator.integers(height)] = mask[:, generator.integers(width) :] = False
        min_area = int(generator.integers(1, largest_min_area))
        changes = check_tidied(mask, min_area)
        left = remove_small_regions(mask, min_area)[0].sum()
        kinds.add((*changes, bool(left), 0 < left < min_area))
    # Holes filled, islands removed, both, neither; empty masks; and masks with nothing but small
    # islands.
    assert {kind[:2] for kind in kinds} == {
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    }
    assert any(not kind[2] for kind in kinds)
    assert any(kind[3] for kind in kinds)


@pytest.mark.slow
@pytest.mark.parametrize("min_area", [2, 30, 500, 10**9])
@pytest.mark.parametrize("kind", ["islands", "holes", "checkerboard", "noise"])
def test_mask_with_thousands_of_regions_is_cleaned_without_following_their_contours(
    kind, min_area, monkeypatch
):
    logits = np.full((256, 256), -1, np.float32)
    logits[::2, ::2] = 1
    if kind == "checkerboard":
        logits[1::2, 1::2] = 1
    if kind == "noise":
        logits = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    mask = masks.upsample(-logits if kind == "holes" else logits, (1024, 1024), (1024, 1024)) > 0
    contours = cv2.findContours

    def bounded(image, *options):
        found, hierarchy = contours(image, *options)
        assert len(found) < 500
        return found, hierarchy

    monkeypatch.setattr(cv2, "findContours", bounded)
    check_tidied(mask, min_area)


def test_mask_of_a_squashed_image_is_scaled_in_one_step():
    logits = np.random.default_rng(0).normal(0, 10, (256, 256)).astype(np.float32)
    found = masks.upsample(logits, None, (300, 500))
    assert np.array_equal(found, cv2.resize(logits, (500, 300), interpolation=cv2.INTER_LINEAR))
