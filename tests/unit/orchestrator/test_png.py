"""PNG files, read back by Pillow and OpenCV."""

from __future__ import annotations

import io
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from orchestrator.png import encode_bilevel_png, encode_png, pack_mask

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
def test_png_round_trip_is_exact(kind, size_hw, channels, mode):
    wanted = pixels(kind, size_hw, channels)
    data = encode_png(wanted)
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode, picture.size) == ("PNG", mode, size_hw[::-1])
    assert np.array_equal(np.asarray(picture), wanted)
    order = [2, 1, 0, 3][:channels]  # OpenCV's channel order
    assert np.array_equal(by_opencv(data), wanted[:, :, order])


def test_png_of_a_non_contiguous_array():
    whole = pixels("noise", (30, 40), 3)
    part = whole[5:20, 7:30]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(encode_png(part)))), part)


def test_flat_pictures_compress_well():
    assert len(encode_png(pixels("white", (480, 640), 3))) < 480 * 640 * 3 / 50


@pytest.mark.parametrize("size_hw", [*SIZES, (5, 8), (5, 9), (5, 7)])
def test_bilevel_png_round_trip_is_exact(size_hw):
    mask = np.random.default_rng(0).random(size_hw) > 0.5
    data = encode_bilevel_png([pack_mask(mask)], size_hw[1])
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode, picture.size) == ("PNG", "1", size_hw[::-1])
    assert np.array_equal(np.asarray(picture), mask)
    assert np.array_equal(by_opencv(data), mask * np.uint8(255))


def test_bilevel_png_stacks_masks_vertically():
    masks = np.random.default_rng(0).random((3, 5, 11)) > 0.5
    data = encode_bilevel_png([pack_mask(mask) for mask in masks], 11)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), masks.reshape(15, 11))


@pytest.mark.parametrize(
    "data",
    [encode_png(pixels("noise", (9, 7), 3)), encode_bilevel_png([pack_mask(np.eye(9, dtype=bool))], 9)],
    ids=["RGB", "bilevel"],
)
def test_png_chunks_have_valid_checksums(data):
    kinds, place = [], 8
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        body, checksum = data[place + 4 : place + 8 + length], data[place + 8 + length : place + 12 + length]
        assert zlib.crc32(body) == int.from_bytes(checksum, "big")
        kinds.append(body[:4])
        place += 12 + length
    assert place == len(data)
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
