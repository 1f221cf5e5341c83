"""The picture part of an answer."""

from __future__ import annotations

import io

import mobile_sam_pictures as pictures
import numpy as np
import pytest
from PIL import Image

IMAGE = np.full((40, 60, 3), (100, 150, 200), np.uint8)
MASK = np.zeros((40, 60), bool)
MASK[10:30, 10:30] = True


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_an_overlay_tints_the_object_and_leaves_the_rest():
    picture = opened(pictures.draw(IMAGE, [MASK], "overlay"))
    assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (60, 40))
    pixels = np.asarray(picture).astype(int)
    tint = (np.array(pictures.COLOURS[0]) + IMAGE[0, 0]) / 2
    assert np.abs(pixels[20, 20] - tint).max() <= 1
    assert np.array_equal(pixels[35:, 35:], IMAGE[35:, 35:])


def test_an_overlay_does_not_write_into_the_image():
    before = IMAGE.copy()
    pictures.overlay(IMAGE, [MASK])
    assert np.array_equal(IMAGE, before)


def test_objects_have_colours_of_their_own():
    other = np.zeros_like(MASK)
    other[10:30, 40:55] = True
    picture = pictures.overlay(IMAGE, [MASK, other])
    assert picture[20, 20].tolist() != picture[20, 47].tolist()


def test_a_cutout_is_transparent_outside():
    picture = opened(pictures.draw(IMAGE, [MASK], "cutout"))
    assert picture.mode == "RGBA"
    pixels = np.asarray(picture)
    assert np.array_equal(pixels[..., 3] == 255, MASK)
    assert np.array_equal(pixels[..., :3], IMAGE)


def test_none_is_no_picture():
    assert pictures.draw(IMAGE, [MASK], "none") == b""


def test_an_empty_mask_leaves_the_image_as_it_is():
    assert np.array_equal(pictures.overlay(IMAGE, [np.zeros_like(MASK)]), IMAGE)


def test_an_outline_runs_along_the_object_and_not_along_the_images_edge():
    half = np.zeros((40, 60), bool)
    half[:, :30] = True
    changed = (pictures.overlay(IMAGE, [half]) != IMAGE).any(axis=2)
    assert changed[:, 30].all()
    assert not changed[:, 35:].any()
    colours = {tuple(pixel) for pixel in pictures.overlay(IMAGE, [half])[20].tolist()}
    assert (255, 255, 255) in colours
    assert pictures.COLOURS[0] in colours
    assert pictures.overlay(IMAGE, [half])[0, 5].tolist() == pictures.overlay(IMAGE, [half])[20, 5].tolist()


def test_time_does_not_grow_with_the_length_of_the_outline():
    noise = np.random.default_rng(0).random((2000, 2000)) > 0.5
    assert pictures.overlay(np.zeros((2000, 2000, 3), np.uint8), [noise]).shape == (2000, 2000, 3)


def test_one_pixel_is_enough():
    assert opened(pictures.draw(IMAGE[:1, :1], [MASK[:1, :1]], "overlay")).size == (1, 1)


def test_an_unknown_style_is_an_error():
    with pytest.raises(ValueError, match="segmented_image must be one of overlay, cutout, none, got 'x'"):
        pictures.draw(IMAGE, [MASK], "x")
