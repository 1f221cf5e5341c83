import io

import numpy as np
import pytest
from PIL import Image

from tests.unit.examples.classification.pixels import pixels_model

CROP = pixels_model().crop


def picture(width, height, seed=0):
    values = np.random.default_rng(seed).integers(
        0, 256, (height // 32 + 2, width // 32 + 2, 3), np.uint8
    )
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
    return np.asarray(
        image.resize((width, height), Image.Resampling.BILINEAR).crop(
            (left, top, left + 224, top + 224)
        )
    )


@pytest.mark.parametrize("resize_size", [224, 232, 256])
@pytest.mark.parametrize("size", [(640, 480), (481, 699), (60, 80), (224, 1000)], ids=str)
def test_crop_is_within_a_pixel_of_scaling_and_then_cropping(size, resize_size):
    image = picture(*size)
    expected = resized_then_cropped(image, resize_size).astype(int)
    found = pixels_model(resize_size).crop(encoded(image)).astype(int)
    pixel_to_pixel = np.abs(np.diff(expected, axis=1)).mean()
    assert np.abs(found - expected).mean() < 0.75 * pixel_to_pixel


def test_very_long_image_is_cropped_without_scaling_it():
    found = CROP(encoded(picture(1, 60_000)))
    assert (found.shape, found.dtype) == ((224, 224, 3), np.uint8)


def test_exif_orientation_is_applied():
    image, exif = picture(300, 260), Image.Exif()
    exif[0x0112] = 6
    rotated = encoded(image.transpose(Image.Transpose.ROTATE_270))
    np.testing.assert_array_equal(CROP(encoded(image, exif=exif)), CROP(rotated))
