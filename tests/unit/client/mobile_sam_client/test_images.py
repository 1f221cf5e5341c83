"""Conversion of paths, bytes, PIL images, arrays and embeddings to files."""

import hashlib
import io
import sys

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from mobile_sam_client._depth import read_samples
from mobile_sam_client._images import displayed_pixels, displayed_wh, load_source
from orchestrator import images
from tests.unit.client.mobile_sam_client.fake_service import file_of, rotated_90

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (5, 7, 3), np.uint8)
GREY = RNG.integers(0, 256, (5, 7), np.uint8)


def sent(image) -> np.ndarray:
    """Return the pixels that would be sent."""
    with Image.open(io.BytesIO(load_source(image).file), formats=["PNG"]) as picture:
        assert not picture.info
        return np.asarray(picture)


def saved(image: Image.Image, **options) -> Image.Image:
    """Save an image and open it again."""
    return Image.open(io.BytesIO(file_of(image, **options)))


def test_files_are_sent_unchanged(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"any bytes")
    for image in (path, str(path), b"any bytes"):
        source = load_source(image)
        assert source.file == b"any bytes"
        assert source.sha256 == hashlib.sha256(b"any bytes").hexdigest()
        assert source.image_id is None


def test_heic_is_sent_as_jpeg_with_the_extra(monkeypatch):
    file = pillow_heif.from_pillow(Image.new("RGB", (80, 60), "red"))
    file.save(buffer := io.BytesIO())
    with Image.open(io.BytesIO(load_source(buffer.getvalue()).file), formats=["JPEG"]) as picture:
        assert picture.size == (80, 60)
    assert displayed_pixels(buffer.getvalue())[30, 40].tolist() == pytest.approx([255, 0, 0], abs=3)
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(
        ValueError, match=r"HEIC needs another package: pip install '\./client\[heic\]'"
    ):
        load_source(buffer.getvalue())


def test_heic_is_turned_by_its_own_means_alone():
    """EXIF of HEIC says what the container has done already."""
    stored = Image.fromarray(
        np.dstack([np.linspace(0, 255, 80).astype(np.uint8)[None].repeat(60, axis=0)] * 3)
    )
    file = pillow_heif.from_pillow(stored)
    file.save(plain := io.BytesIO())
    file.save(turned := io.BytesIO(), exif=rotated_90().tobytes())
    for saved_file in (plain, turned):
        source = load_source(saved_file.getvalue())
        shown = displayed_pixels(saved_file.getvalue())
        with Image.open(io.BytesIO(saved_file.getvalue())) as opened:
            expected = np.asarray(opened.convert("RGB"))
        assert np.abs(shown.astype(int) - expected).max() < 12
        assert displayed_wh(source.file) == shown.shape[1::-1]


@pytest.mark.parametrize("array", [RGB, GREY, RGB[::-1, ::2], np.asfortranarray(RGB)])
def test_array_is_sent_lossless(array):
    assert (sent(array) == array).all()
    assert (sent(np.dstack([RGB, GREY])) == RGB).all()


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (RGB.astype(float), r"float64 of shape \(5, 7, 3\); convert values of 0 to 1 with"),
        (GREY > 5, r"bool of shape \(5, 7\)$"),
        (RGB[..., :2], r"shape \(5, 7, 2\)$"),
        (GREY[0], r"shape \(7,\)$"),
        (RGB[:0], r"shape \(0, 7, 3\)$"),
    ],
)
def test_unsupported_array_is_rejected(array, got):
    with pytest.raises(ValueError, match=r"^image: expected \(H, W, 3\) RGB, .*, got " + got):
        load_source(array)


def test_rotation_is_applied_to_files_alone():
    file = file_of(Image.fromarray(RGB), exif=rotated_90())
    with Image.open(io.BytesIO(file)) as opened:
        assert (sent(opened) == RGB).all()
        for image, pixels in ((opened, RGB), (RGB, RGB), (file, np.rot90(RGB, -1))):
            assert (displayed_pixels(image) == pixels).all()


ALPHA = np.full((5, 7), 9, np.uint8)
PALETTE = Image.fromarray(RGB // 64 * 64).quantize(16)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.fromarray(GREY > 99), (GREY > 99) * np.uint8(255)),
        (Image.fromarray(GREY), GREY),
        (Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(ALPHA)]), GREY),
        (Image.fromarray(np.dstack([RGB, ALPHA])), RGB),
        (saved(PALETTE, transparency=3), np.asarray(PALETTE.convert("RGB"))),
        (Image.fromarray(RGB).convert("CMYK"), RGB),
    ],
    ids=["1", "L", "LA", "RGBA", "P", "CMYK"],
)
def test_pil_modes_are_converted_to_grey_or_rgb(image, expected):
    np.testing.assert_array_equal(sent(image), expected, strict=True)
    rgb = expected if expected.ndim == 3 else np.dstack([expected] * 3)
    np.testing.assert_array_equal(displayed_pixels(image), rgb, strict=True)


DEEP_RGB = RNG.integers(100, 4196, (5, 7, 3), np.uint16)
DEEP_GREY = DEEP_RGB[..., 0].copy()


@pytest.mark.parametrize(
    ("image", "samples"),
    [
        (Image.fromarray(DEEP_GREY), DEEP_GREY),
        (Image.fromarray(DEEP_GREY.astype(np.int32)), DEEP_GREY),
        (DEEP_GREY, DEEP_GREY),
        (DEEP_GREY.astype(">u2"), DEEP_GREY),
        (DEEP_RGB, DEEP_RGB),
        (DEEP_RGB[::-1, ::2], DEEP_RGB[::-1, ::2]),
        (np.dstack([DEEP_RGB, DEEP_GREY]), DEEP_RGB),
    ],
    ids=["I;16", "I", "grey", "big endian", "RGB", "strided", "RGBA"],
)
def test_16_bit_samples_are_sent_whole_and_shown_as_the_service_shows_them(image, samples):
    file = load_source(image).file
    np.testing.assert_array_equal(read_samples(file), samples, strict=True)
    pixels, sample_range = images.decode(images.open_image(file, 1000))
    assert sample_range == (samples.min(), samples.max())
    np.testing.assert_array_equal(displayed_pixels(image), pixels, strict=True)


@pytest.mark.parametrize(
    ("image", "got"),
    [
        (Image.fromarray(GREY.astype(np.float32)), r"expected a PIL image of mode .*, got F$"),
        (
            Image.fromarray(np.array([[70_000]], np.int32)),
            "expected samples of 0 to 65535 .* got 70000 to 70000$",
        ),
        (Image.new("RGB", (0, 5)), r"got shape \(5, 0, 3\)$"),
    ],
    ids=["F", "above 16 bits", "empty"],
)
def test_unsupported_pil_image_is_rejected(image, got):
    with pytest.raises(ValueError, match=got):
        load_source(image)


def test_unreadable_file_is_rejected(tmp_path):
    path = tmp_path / "empty.jpg"
    path.touch()
    for image, name in ((path, str(path)), (b"", "image")):
        with pytest.raises(
            ValueError, match=f"^{name}: expected a PNG, JPEG or WebP file, got 0 bytes$"
        ):
            load_source(image)
    with pytest.raises(
        ValueError, match=r"^image: expected an image file that Pillow can read, got 8 other bytes$"
    ):
        displayed_pixels(b"no image")
