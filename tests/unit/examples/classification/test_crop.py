import io

import numpy as np
import pytest
from PIL import Image

from tests.unit.examples.models import load

crop = load("classification", "classification_pixels", "classification_crop")
LIMIT = 10_000_000


def picture(width, height, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), np.uint8)
    return Image.fromarray(values).resize((width, height))


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def resized_then_cropped(image, size):
    """Return the result of torchvision's transforms, step by step."""
    shorter = min(image.size)
    width, height = (int(size * side / shorter) for side in image.size)
    left, top = round((width - 224) / 2), round((height - 224) / 2)
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224)))


@pytest.mark.parametrize("resize_size", [224, 232, 256])
@pytest.mark.parametrize(
    "size",
    [(640, 480), (481, 699), (256, 256), (60, 80), (1280, 333), (224, 1000)],
    ids=lambda size: "x".join(map(str, size)),
)
def test_crop_equals_scaling_and_then_cropping(size, resize_size):
    image = picture(*size)
    differences = np.abs(crop.middle(image, resize_size).astype(int) - resized_then_cropped(image, resize_size))
    assert differences.max() <= 2
    assert differences.mean() <= 0.15


def test_very_long_image_is_cropped_without_scaling_it():
    found = crop.load_crop(encoded(picture(1, 60_000)), 256, LIMIT)
    assert (found.shape, found.dtype) == ((224, 224, 3), np.uint8)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_common_formats_and_modes_are_read_as_rgb(kind, mode):
    image = picture(300, 260).convert(mode)
    found = crop.load_crop(encoded(image, kind, quality=100), 256, LIMIT)
    assert np.abs(found.astype(int) - resized_then_cropped(image.convert("RGB"), 256)).mean() < 6


def test_exif_orientation_is_applied():
    image, exif = picture(300, 260), Image.Exif()
    exif[0x0112] = 6
    rotated = crop.load_crop(encoded(image, exif=exif), 256, LIMIT)
    np.testing.assert_array_equal(rotated, crop.middle(image.transpose(Image.Transpose.ROTATE_270), 256))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (b"", "expected a PNG, JPEG or WebP file, got 0 bytes of another format"),
        (b"no image", "got 8 bytes of another format"),
        (encoded(picture(80, 60), "GIF"), "expected a PNG, JPEG or WebP file"),
        (encoded(picture(80, 60))[:-300], "expected a complete image file, got .* damaged bytes"),
        (encoded(picture(4000, 2501)), "expected at most 10000000 pixels, got 4000 x 2501"),
    ],
    ids=["empty", "text", "gif", "truncated", "large"],
)
def test_invalid_file_is_rejected(file, message):
    with pytest.raises(crop.InvalidInput, match=message):
        crop.load_crop(file, 256, LIMIT)
