"""Conversion of paths, bytes, PIL images, arrays and embeddings to files."""

import hashlib
import io

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client._images import displayed_pixels, load_source
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


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (RGB, RGB),
        (GREY, GREY),
        (np.dstack([RGB, GREY]), RGB),
        (RGB[::-1, ::2], RGB[::-1, ::2]),
        (np.asfortranarray(RGB), RGB),
        (np.zeros((1, 1), np.uint8), np.zeros((1, 1), np.uint8)),
    ],
    ids=["RGB", "grey", "RGBA", "view", "Fortran order", "one pixel"],
)
def test_array_is_sent_lossless(array, expected):
    assert (sent(array) == expected).all()


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (RGB.astype(float), r"float64 of shape \(5, 7, 3\); convert values of 0 to 1 with"),
        (RGB.astype(np.int64), r"int64 of shape \(5, 7, 3\)$"),
        (GREY > 5, r"bool of shape \(5, 7\)$"),
        (RGB[..., :2], r"shape \(5, 7, 2\)$"),
        (GREY[..., None], r"shape \(5, 7, 1\)$"),
        (RGB[None], r"shape \(1, 5, 7, 3\)$"),
        (GREY[0], r"shape \(7,\)$"),
        (RGB[:0], r"shape \(0, 7, 3\)$"),
    ],
    ids=["float", "int64", "bool", "two channels", "one channel", "batch", "one dimension", "empty"],
)
def test_unsupported_array_is_rejected(array, got):
    with pytest.raises(ValueError, match=r"^image: expected \(H, W, 3\) uint8 RGB, .*, got " + got):
        load_source(array)


def test_array_and_pil_image_give_the_same_file():
    ids = {
        load_source(image).sha256
        for image in (RGB, Image.fromarray(RGB), saved(Image.fromarray(RGB)), np.dstack([RGB, GREY]))
    }
    assert len(ids) == 1


def test_pil_metadata_is_not_sent():
    opened = saved(Image.fromarray(RGB), icc_profile=b"a profile", dpi=(300, 300), transparency=(1, 2, 3))
    assert {"icc_profile", "dpi", "transparency"} <= set(opened.info)
    assert (sent(opened) == RGB).all()


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
        (Image.fromarray(RGB).convert("RGBX"), RGB),
        (Image.fromarray(RGB).convert("RGBA").convert("RGBa"), RGB),
        (PALETTE, np.asarray(PALETTE.convert("RGB"))),
        (saved(PALETTE, transparency=3), np.asarray(PALETTE.convert("RGB"))),
        (saved(PALETTE, transparency=bytes(range(16))), np.asarray(PALETTE.convert("RGB"))),
        (Image.fromarray(RGB).convert("CMYK"), RGB),
        (Image.fromarray(RGB).convert("YCbCr"), np.asarray(Image.fromarray(RGB).convert("YCbCr").convert("RGB"))),
        (Image.fromarray(RGB).convert("HSV"), np.asarray(Image.fromarray(RGB).convert("HSV").convert("RGB"))),
        (Image.fromarray(GREY.astype(np.uint16) * 256 + 7), GREY),
        (Image.fromarray(GREY.astype(">u2") * 256 + 7), GREY),
        (Image.fromarray(GREY.astype(np.int32) * 256 + 7), GREY),
    ],
    ids=[
        "1", "L", "LA", "RGBA", "RGBX", "RGBa", "P", "P, one transparent", "P, all transparent", "CMYK", "YCbCr", "HSV",
        "I;16", "I;16B", "I",
    ],
)  # fmt: skip
def test_pil_modes_are_converted_to_grey_or_rgb(image, expected):
    np.testing.assert_array_equal(sent(image), expected, strict=True)
    rgb = expected if expected.ndim == 3 else np.dstack([expected] * 3)
    np.testing.assert_array_equal(displayed_pixels(image), rgb, strict=True)


@pytest.mark.parametrize(
    ("image", "got"),
    [
        (Image.fromarray(GREY.astype(np.float32)), r"expected a PIL image of mode .*, got F$"),
        (Image.new("LAB", (2, 2)), "got LAB$"),
        (Image.fromarray(np.array([[70_000]], np.int32)), "expected samples of 0 to 65535 .* got 70000 to 70000$"),
        (Image.fromarray(np.array([[-1]], np.int32)), "got -1 to -1$"),
        (Image.new("RGB", (0, 5)), r"got shape \(5, 0, 3\)$"),
        (Image.new("I", (0, 5)), r"got shape \(5, 0\)$"),
    ],
    ids=["F", "LAB", "above 16 bits", "negative", "empty", "empty 16 bits"],
)
def test_unsupported_pil_image_is_rejected(image, got):
    with pytest.raises(ValueError, match=got):
        load_source(image)


def test_unreadable_file_is_rejected(tmp_path):
    path = tmp_path / "empty.jpg"
    path.touch()
    for image, name in ((path, str(path)), (b"", "image")):
        with pytest.raises(ValueError, match=f"^{name}: expected a PNG, JPEG or WebP file, got 0 bytes$"):
            load_source(image)
    with pytest.raises(ValueError, match=r"^image: Pillow cannot decode the file: "):
        displayed_pixels(b"no image")
