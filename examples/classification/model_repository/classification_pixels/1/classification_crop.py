"""From an encoded file to the crop that the net takes, as torchvision's transforms of its weights make it."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

CROP = 224
FORMATS = ("PNG", "JPEG", "WEBP")

# The limit is ours, checked in `crop_of`, with a message that says what it is.
Image.MAX_IMAGE_PIXELS = None


class Unusable(ValueError):
    """The file cannot be used; the message says what was expected and what came."""


def crop_of(file: bytes, resize_size: int, max_pixels: int) -> npt.NDArray[np.uint8]:
    """The middle of an image as displayed, (224, 224, 3) uint8 RGB, its shorter side scaled to `resize_size` pixels.

    Args:
        file: a PNG, JPEG or WebP file.
        resize_size: at least 224.
        max_pixels: largest width times height.

    Raises:
        Unusable: no such file, a damaged one, or one of too many pixels.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(file), formats=FORMATS)
    except Exception:  # Pillow's parsers raise many types
        raise Unusable(f"expected a PNG, JPEG or WebP file, got {len(file)} bytes that are none") from None
    if image.width * image.height > max_pixels:
        raise Unusable(f"expected at most {max_pixels} pixels, got {image.width} x {image.height}")
    try:
        image.load()
        image = ImageOps.exif_transpose(image).convert("RGB")
    except Exception:
        raise Unusable(f"expected a complete image file, got a damaged one of {len(file)} bytes") from None
    return middle(image, resize_size)


def middle(image: Image.Image, resize_size: int) -> npt.NDArray[np.uint8]:
    """(224, 224, 3) uint8: within 2 of the whole image scaled and then cropped, of which only the crop is computed."""
    shorter = min(image.size)
    scaled = [resize_size * side // shorter for side in image.size]
    offsets = [round((side - CROP) / 2) for side in scaled]
    factors = [side / new for side, new in zip(image.size, scaled, strict=True)]
    left, top = (offset * factor for offset, factor in zip(offsets, factors, strict=True))
    width, height = (CROP * factor for factor in factors)
    box = (left, top, min(left + width, image.width), min(top + height, image.height))
    return np.asarray(image.resize((CROP, CROP), Image.Resampling.BILINEAR, box=box))
