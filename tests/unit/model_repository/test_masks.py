"""Masks at the image's size, and their encodings."""

from __future__ import annotations

import io
import json

import mobile_sam_masks as masks
import numpy as np
import pytest
from PIL import Image


def half(height: int, width: int) -> np.ndarray:
    mask = np.zeros((height, width), bool)
    mask[:, : width // 2] = True
    return mask


def test_the_sign_of_the_logits_decides_and_padding_is_cut_off():
    logits = np.full((256, 256), -5, np.float32)
    logits[:64] = 5  # upper half of the valid area, which is the upper half of the frame
    mask = masks.upsample(logits, (512, 1024), (100, 200))
    assert mask.shape == (100, 200)
    assert mask.dtype == bool
    assert mask[:49].all()
    assert not mask[51:].any()


def test_edges_are_smooth_not_blocks_of_the_low_resolution():
    y, x = np.mgrid[:256, :256].astype(np.float32)
    mask = masks.upsample(60 - np.hypot(x - 128, y - 128), (1024, 1024), (1024, 1024))
    y, x = (np.mgrid[:1024, :1024] + 0.5) / 4 - 0.5
    assert (mask != (np.hypot(x - 128, y - 128) < 60)).mean() < 0.0005


@pytest.mark.parametrize("size_hw", [(1, 1), (1, 500), (37, 53), (2000, 1500)])
def test_any_size_of_image_gets_a_mask_of_its_size(size_hw):
    assert masks.upsample(np.ones((256, 256), np.float32), (1024, 1024), size_hw).shape == size_hw


def test_json_is_nested_lists_of_0_and_1():
    assert json.loads(masks.encode(half(2, 4), "json")) == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert json.loads(masks.encode(np.stack([half(1, 2), ~half(1, 2)]), "json")) == [[[1, 0]], [[0, 1]]]


def test_npy_is_the_bool_array():
    several = np.stack([half(3, 5), ~half(3, 5)])
    loaded = np.load(io.BytesIO(masks.encode(several, "npy")), allow_pickle=False)
    assert loaded.dtype == bool
    assert np.array_equal(loaded, several)


def test_png_is_one_bit_a_pixel():
    picture = Image.open(io.BytesIO(masks.encode(half(30, 50), "png")))
    assert picture.mode == "1"
    assert np.array_equal(np.asarray(picture), half(30, 50))


def test_several_masks_stand_one_below_the_other_in_a_png():
    several = np.stack([half(3, 5), ~half(3, 5)])
    picture = Image.open(io.BytesIO(masks.encode(several, "png")))
    assert np.array_equal(np.asarray(picture).reshape(2, 3, 5), several)


def test_an_unknown_format_is_an_error():
    with pytest.raises(ValueError, match="mask_format must be one of json, npy, png, got 'bmp'"):
        masks.encode(half(2, 2), "bmp")


def test_area_and_box_have_exclusive_ends():
    mask = np.zeros((20, 30), bool)
    mask[5:8, 10:20] = True
    assert masks.area_and_box(mask) == (30, [10, 5, 20, 8])


def test_an_empty_mask_has_an_empty_box():
    assert masks.area_and_box(np.zeros((4, 4), bool)) == (0, [0, 0, 0, 0])
