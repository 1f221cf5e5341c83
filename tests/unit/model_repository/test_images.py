"""Decoding: the right pixels, or a rejection that says why."""

from __future__ import annotations

import io
import struct
import zlib

import mobile_sam_images as images
import numpy as np
import pytest
from mobile_sam_problems import Rejected
from PIL import Image

MAX_PIXELS = 1_000_000


def encoded(image: Image.Image, file_format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def decoded(data: bytes) -> np.ndarray:
    return images.decode(images.open_image(data, MAX_PIXELS))


def rejection(data: bytes) -> Rejected:
    with pytest.raises(Rejected) as caught:
        decoded(data)
    assert caught.value.errors[0]["field"] == "input_image"
    return caught.value


@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_lossless_formats_come_back_as_they_were(file_format):
    pixels = noise(20, 30)
    assert np.array_equal(decoded(encoded(Image.fromarray(pixels), file_format, lossless=True)), pixels)


def test_jpeg_is_read():
    flat = np.full((16, 24, 3), (200, 100, 50), np.uint8)
    assert np.abs(decoded(encoded(Image.fromarray(flat), "JPEG")).astype(int) - flat).max() < 4


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        pytest.param("L", 77, (77, 77, 77), id="grey"),
        pytest.param("1", 1, (255, 255, 255), id="1 bit"),
        pytest.param("LA", (77, 10), (77, 77, 77), id="grey with alpha"),
        pytest.param("RGBA", (1, 2, 3, 0), (1, 2, 3), id="transparent"),
        pytest.param("I;16", 0x8040, (0x80, 0x80, 0x80), id="16 bit grey"),
    ],
)
def test_every_kind_of_png_becomes_rgb(mode, value, expected):
    assert decoded(encoded(Image.new(mode, (5, 4), value))).tolist() == [[list(expected)] * 5] * 4


def test_a_palette_becomes_rgb():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2] = (255, 0, 0)
    assert np.array_equal(decoded(encoded(Image.fromarray(pixels).quantize(2))), pixels)


def test_cmyk_jpeg_becomes_rgb():
    assert decoded(encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG"))[0, 0].min() > 250


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation):
    stored = noise(6, 10)
    exif = Image.Exif()
    exif[0x0112] = orientation
    opened = images.open_image(encoded(Image.fromarray(stored), exif=exif), MAX_PIXELS)
    turned = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.transpose(1, 0, 2),
        6: stored[::-1].transpose(1, 0, 2),
        7: stored[::-1, ::-1].transpose(1, 0, 2),
        8: stored[:, ::-1].transpose(1, 0, 2),
    }[orientation]
    assert np.array_equal(images.decode(opened), turned)


@pytest.mark.parametrize("orientation", [0, 9, 60_000])
def test_a_senseless_orientation_is_ignored(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert decoded(encoded(Image.new("RGB", (3, 2)), exif=exif)).shape == (2, 3, 3)


@pytest.mark.parametrize(
    ("data", "status", "got"),
    [
        pytest.param(b"", 422, "0 bytes", id="nothing"),
        pytest.param(b"hello, this is text", 422, "19 bytes that are no image", id="text"),
        pytest.param(encoded(Image.new("RGB", (3, 2)), "GIF"), 415, "GIF", id="GIF"),
        pytest.param(encoded(Image.new("RGB", (3, 2)), "BMP"), 415, "BMP", id="BMP"),
        pytest.param(encoded(Image.new("RGB", (3, 2)), "TIFF"), 415, "TIFF", id="TIFF"),
        pytest.param(b"\0\0\0\x18ftypheic", 415, "HEIF", id="HEIC"),
        pytest.param(encoded(Image.new("RGB", (3, 2)))[:20], 422, "truncated PNG", id="PNG header cut off"),
        pytest.param(b"\xff\xd8\xff\xe0", 422, "truncated JPEG", id="JPEG marker alone"),
        pytest.param(b"RIFF\x10\x00\x00\x00WEBPVP8 ", 422, "truncated WEBP", id="WebP header alone"),
    ],
)
def test_what_is_no_supported_image_is_rejected(data, status, got):
    rejected = rejection(data)
    assert rejected.status == status
    assert got in rejected.errors[0]["got"]


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_truncated_files_are_rejected(file_format, kept):
    data = encoded(Image.fromarray(noise(100, 100)), file_format)
    rejected = rejection(data[: int(len(data) * kept)])
    assert (rejected.status, rejected.slug) == (422, "invalid-image")


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(pixels: bytes, width: int, height: int, *further: bytes) -> bytes:
    """A PNG of 8-bit grey whose compressed pixels are `pixels`, with further chunks before them."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(further) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def test_a_png_whose_pixels_are_missing_or_damaged_is_rejected_not_black():
    rows = zlib.compress((b"\0" + bytes(range(100))) * 100)
    assert decoded(png(rows, 100, 100)).shape == (100, 100, 3)
    zeroed = rows[:60] + bytes(40) + rows[100:]
    for pixels in (rows[:50], b"", zeroed):
        rejected = rejection(png(pixels, 100, 100))
        assert (rejected.status, rejected.slug) == (422, "invalid-image")


@pytest.mark.parametrize("name", [b"zTXt", b"iCCP"])
def test_large_metadata_does_not_hinder(name):
    rows = zlib.compress((b"\0" + bytes(100)) * 100)
    metadata = chunk(name, b"profile\0\0" + zlib.compress(bytes(5 * 2**20)))
    assert decoded(png(rows, 100, 100, metadata)).shape == (100, 100, 3)


@pytest.mark.parametrize("size", [(70_000, 1), (1, 70_000)])
def test_a_side_that_no_encoder_takes_is_rejected(size):
    rejected = rejection(encoded(Image.new("1", size)))
    assert rejected.status == 413
    assert rejected.errors[0]["expected"] == "sides of at most 65535 pixels"


def test_damaged_pixels_are_rejected_or_read_but_never_crash():
    data = bytearray(encoded(Image.fromarray(noise(50, 50))))
    generator = np.random.default_rng(1)
    for _ in range(300):
        damaged = data.copy()
        for place in generator.integers(8, len(data), 5):
            damaged[place] = generator.integers(0, 256)
        try:
            pixels = decoded(bytes(damaged))
        except Rejected:
            continue
        assert pixels.dtype == np.uint8
        assert pixels.shape[2] == 3


def test_too_many_pixels_are_rejected_by_the_header_alone():
    header = encoded(Image.new("1", (30_000, 30_000)))[:200]
    rejected = rejection(header)
    assert (rejected.status, rejected.slug) == (413, "image-too-large")
    assert rejected.errors[0] == {
        "field": "input_image",
        "expected": "at most 1000000 pixels",
        "got": "30000 x 30000 = 900000000",
    }


@pytest.mark.parametrize(
    ("size_hw", "frame_hw"),
    [((1, 1), (1024, 1024)), ((1200, 1800), (683, 1024)), ((4000, 3), (1024, 1)), ((1, 5000), (1, 1024))],
)
def test_the_longest_side_becomes_1024(size_hw, frame_hw):
    assert images.frame_size_hw(size_hw) == frame_hw


def test_a_frame_is_padded_right_and_below_with_zero():
    frame = images.to_frame(np.full((10, 20, 3), 9, np.uint8))
    assert frame.size_hw == (512, 1024)
    assert frame.pixels.shape == (1024, 1024, 3)
    assert (frame.pixels[:512] == 9).all()
    assert not frame.pixels[512:].any()
