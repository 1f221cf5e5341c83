"""The picture part of an answer."""

import io

import numpy as np
import pytest
from PIL import Image

from orchestrator import pictures, png
from orchestrator.pictures import Picture, overlay
from orchestrator.png import Strip

IMAGE = np.full((40, 60, 3), (100, 150, 200), np.uint8)
IMAGE.flags.writeable = False


def box(x0: int, y0: int, x1: int, y1: int, size_hw: tuple[int, int] = (40, 60)) -> np.ndarray:
    """Return a mask that is true inside a box."""
    mask = np.zeros(size_hw, bool)
    mask[y0:y1, x0:x1] = True
    return mask


MASK = box(10, 10, 30, 30)


def drawn(style: str, *masks: np.ndarray, image: np.ndarray = IMAGE) -> Image.Image:
    picture = Picture(image, style)
    for mask in masks:
        picture.add(mask)
    return Image.open(io.BytesIO(picture.encode()))


def overlaid(*masks: np.ndarray, image: np.ndarray = IMAGE) -> np.ndarray:
    return np.asarray(drawn("overlay", *masks, image=image))


def test_overlay_tints_only_the_object():
    picture = drawn("overlay", MASK)
    assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (60, 40))
    pixels = np.asarray(picture).astype(int)
    tint = (np.array(pictures.COLOURS[0]) + IMAGE[0, 0]) / 2
    assert np.abs(pixels[20, 20] - tint).max() <= 1
    assert np.array_equal(pixels[35:, 35:], IMAGE[35:, 35:])


def test_overlay_changes_only_pixels_near_the_mask_and_returns_their_rows():
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    picture, mask = image.copy(), box(40, 30, 70, 50, (90, 120))
    rows = overlay(picture, mask, (255, 0, 0))
    changed = (picture != image).any(axis=2)
    assert changed[mask].all()
    assert (changed & ~mask).any()
    assert not (changed & ~box(38, 28, 72, 52, (90, 120))).any()
    changed[rows] = False
    assert not changed.any()


def test_object_colours_repeat_after_the_last():
    places = range(0, 20 * (len(pictures.COLOURS) + 1), 20)
    masks = [box(x + 5, 5, x + 15, 15, (20, 200)) for x in places]
    pixels = overlaid(*masks, image=np.zeros((20, 200, 3), np.uint8))
    shades = [tuple(pixels[10, x + 10].tolist()) for x in places]
    assert len(set(shades)) == len(pictures.COLOURS)
    assert shades[0] == shades[-1]
    assert overlaid(MASK, MASK)[20, 20].tolist() != overlaid(MASK)[20, 20].tolist()  # the later one is on top


def test_cutout_is_transparent_outside_all_objects():
    other = box(40, 25, 55, 38)
    picture = drawn("cutout", MASK, other)
    assert picture.mode == "RGBA"
    pixels = np.asarray(picture)
    assert np.array_equal(pixels[..., 3], np.where(MASK | other, 255, 0))
    assert np.array_equal(pixels[..., :3], IMAGE)


def test_empty_mask_draws_nothing_but_uses_a_colour():
    empty = np.zeros_like(MASK)
    assert np.array_equal(overlaid(empty), IMAGE)
    assert not np.asarray(drawn("cutout", empty))[..., 3].any()
    assert overlaid(empty, MASK)[20, 20].tolist() != overlaid(MASK)[20, 20].tolist()


def test_outline_does_not_follow_the_image_edge():
    pixels = overlaid(box(0, 0, 30, 40))
    changed = (pixels != IMAGE).any(axis=2)
    assert changed[:, 30].all()
    assert not changed[:, 35:].any()
    assert {(255, 255, 255), pictures.COLOURS[0]} <= {tuple(pixel) for pixel in pixels[20].tolist()}
    assert pixels[0, 5].tolist() == pixels[20, 5].tolist()


@pytest.mark.parametrize("style", ["overlay", "cutout"])
def test_picture_of_one_pixel(style):
    for value in (False, True):
        assert drawn(style, np.full((1, 1), value), image=IMAGE[:1, :1]).size == (1, 1)


@pytest.mark.parametrize("limit", [0, 10**6], ids=["image too large to keep strips", "strips kept"])
def test_overlays_of_one_image_share_its_compressed_strips(monkeypatch, limit):
    monkeypatch.setattr(png, "STRIP_BYTES", 5 * 60 * 3)
    monkeypatch.setattr(pictures, "MAX_KEPT_PIXELS", limit)
    image, strips = np.random.default_rng(0).integers(0, 256, IMAGE.shape, np.uint8), dict[int, Strip]()
    for masks in ([MASK], [box(0, 0, 5, 5), box(50, 35, 60, 40)], [], [np.ones_like(MASK)], [MASK]):
        picture = Picture(image, "overlay", strips)
        for mask in masks:
            picture.add(mask)
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(picture.encode()))), overlaid(*masks, image=image))
    assert sorted(strips) == (list(range(0, 40, 5)) if limit else [])
