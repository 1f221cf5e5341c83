"""The picture part of an answer."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from orchestrator import pictures
from orchestrator.pictures import Picture, overlay

IMAGE = np.full((40, 60, 3), (100, 150, 200), np.uint8)
IMAGE.flags.writeable = False
MASK = np.zeros((40, 60), bool)
MASK[10:30, 10:30] = True


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


@pytest.mark.parametrize("style", ["overlay", "cutout"])
def test_drawing_does_not_change_the_image(style):
    image = IMAGE.copy()
    drawn(style, MASK, image=image)
    assert np.array_equal(image, IMAGE)


def test_overlay_changes_only_pixels_near_the_mask():
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    mask = np.zeros((90, 120), bool)
    mask[30:50, 40:70] = True
    picture = image.copy()
    overlay(picture, mask, (255, 0, 0))
    changed = (picture != image).any(axis=2)
    assert changed[mask].all()
    outside = changed & ~mask
    assert outside.any()
    assert not outside[:28].any()
    assert not outside[52:].any()
    assert not outside[:, :38].any()
    assert not outside[:, 72:].any()


def test_overlay_on_a_view_stays_inside_it():
    picture = np.zeros((80, 100, 3), np.uint8)
    overlay(picture[20:60, 20:80], MASK, (255, 0, 0))
    assert picture[20:60, 20:80].any()
    picture[20:60, 20:80] = 0
    assert not picture.any()


def test_object_colours_repeat_after_the_last():
    masks = []
    for index in range(len(pictures.COLOURS) + 1):
        mask = np.zeros((20, 200), bool)
        mask[5:15, 20 * index + 5 : 20 * index + 15] = True
        masks.append(mask)
    pixels = overlaid(*masks, image=np.zeros((20, 200, 3), np.uint8))
    shades = [tuple(pixels[10, 20 * index + 10].tolist()) for index in range(len(masks))]
    assert len(set(shades)) == len(pictures.COLOURS)
    assert shades[0] == shades[-1]


def test_later_objects_are_drawn_over_earlier_ones():
    assert overlaid(MASK, MASK)[20, 20].tolist() != overlaid(MASK)[20, 20].tolist()


def test_cutout_is_transparent_outside_all_objects():
    other = np.zeros_like(MASK)
    other[25:38, 40:55] = True
    picture = drawn("cutout", MASK, other)
    assert picture.mode == "RGBA"
    pixels = np.asarray(picture)
    assert np.array_equal(pixels[..., 3], np.where(MASK | other, 255, 0))
    assert np.array_equal(pixels[..., :3], IMAGE)


def test_picture_without_objects_is_the_image_or_transparent():
    assert np.array_equal(overlaid(), IMAGE)
    assert not np.asarray(drawn("cutout"))[..., 3].any()


def test_empty_mask_draws_nothing_but_uses_a_colour():
    empty = np.zeros_like(MASK)
    assert np.array_equal(overlaid(empty), IMAGE)
    assert overlaid(empty, MASK)[20, 20].tolist() != overlaid(MASK)[20, 20].tolist()


def test_outline_does_not_follow_the_image_edge():
    half = np.zeros((40, 60), bool)
    half[:, :30] = True
    pixels = overlaid(half)
    changed = (pixels != IMAGE).any(axis=2)
    assert changed[:, 30].all()
    assert not changed[:, 35:].any()
    colours = {tuple(pixel) for pixel in pixels[20].tolist()}
    assert (255, 255, 255) in colours
    assert pictures.COLOURS[0] in colours
    assert pixels[0, 5].tolist() == pixels[20, 5].tolist()


def test_outline_does_not_depend_on_the_position():
    image = np.zeros((200, 300, 3), np.uint8)
    parts = []
    for x, y in ((20, 20), (150, 100), (270, 170)):
        mask = np.zeros((200, 300), bool)
        mask[y : y + 20, x : x + 20] = True
        parts.append(overlaid(mask, image=image)[y - 10 : y + 30, x - 10 : x + 30])
    assert np.array_equal(parts[0], parts[1])
    assert np.array_equal(parts[0], parts[2])


@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize("style", ["overlay", "cutout"])
def test_picture_of_one_pixel(style, value):
    assert drawn(style, np.full((1, 1), value), image=IMAGE[:1, :1]).size == (1, 1)


@pytest.mark.parametrize("style", ["none", "x"])
def test_unknown_picture_style_is_an_error(style):
    with pytest.raises(ValueError, match=f"segmented_image must be one of overlay, cutout, none, got '{style}'"):
        Picture(IMAGE, style)
