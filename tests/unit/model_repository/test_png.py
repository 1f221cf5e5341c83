"""PNG files of our own making, read by others."""

from __future__ import annotations

import io
import zlib

import cv2
import numpy as np
import pytest
from mobile_sam_png import bilevel_png, packed, png
from PIL import Image

SIZES = [(1, 1), (1, 37), (41, 1), (2, 2), (13, 17), (480, 640), (333, 501)]
KINDS = ["noise", "gradient", "black", "white"]


def pixels(kind: str, size_hw: tuple[int, int], channels: int) -> np.ndarray:
    shape = (*size_hw, channels)
    if kind == "noise":
        return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    if kind == "gradient":
        gradient: np.ndarray = np.indices(shape).sum(axis=0).astype(np.uint8)
        return gradient
    return np.full(shape, 0 if kind == "black" else 255, np.uint8)


def by_opencv(data: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("size_hw", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_pictures_come_back_to_the_bit(kind, size_hw, channels, mode):
    wanted = pixels(kind, size_hw, channels)
    data = png(wanted)
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode, picture.size) == ("PNG", mode, size_hw[::-1])
    assert np.array_equal(np.asarray(picture), wanted)
    order = [2, 1, 0, 3][:channels]  # OpenCV's
    assert np.array_equal(by_opencv(data), wanted[:, :, order])


def test_a_part_of_a_picture_can_be_written():
    whole = pixels("noise", (30, 40), 3)
    part = whole[5:20, 7:30]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(part)))), part)


def test_flat_pictures_become_small():
    assert len(png(pixels("white", (480, 640), 3))) < 480 * 640 * 3 / 50


@pytest.mark.parametrize("size_hw", [*SIZES, (5, 8), (5, 9), (5, 7)])
def test_masks_come_back_with_one_bit_a_pixel(size_hw):
    mask = np.random.default_rng(0).random(size_hw) > 0.5
    data = bilevel_png([packed(mask)], size_hw[1])
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode, picture.size) == ("PNG", "1", size_hw[::-1])
    assert np.array_equal(np.asarray(picture), mask)
    assert np.array_equal(by_opencv(data), mask * np.uint8(255))


def test_several_masks_stand_one_below_the_other():
    masks = np.random.default_rng(0).random((3, 5, 11)) > 0.5
    data = bilevel_png([packed(mask) for mask in masks], 11)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), masks.reshape(15, 11))


@pytest.mark.parametrize("data", [png(pixels("noise", (9, 7), 3)), bilevel_png([packed(np.eye(9, dtype=bool))], 9)])
def test_every_chunk_has_its_checksum_and_nothing_follows_the_last(data):
    kinds, place = [], 8
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        body, checksum = data[place + 4 : place + 8 + length], data[place + 8 + length : place + 12 + length]
        assert zlib.crc32(body) == int.from_bytes(checksum, "big")
        kinds.append(body[:4])
        place += 12 + length
    assert place == len(data)
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
