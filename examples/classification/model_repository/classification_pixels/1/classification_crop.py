"""Decoding and cropping of images, equivalent to torchvision's transforms."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

CROP = 224
FORMATS = ("PNG", "JPEG", "WEBP")

# Disabled, because `load_crop` checks the size with its own message.
Image.MAX_IMAGE_PIXELS = None


class InvalidInput(ValueError):
    """Invalid file; the message says what was expected and what came."""


def load_crop(file: bytes, resize_size: int, max_pixels: int) -> npt.NDArray[np.uint8]:
    """Return the centre crop of the displayed image, (224, 224, 3) uint8 RGB, after scaling to `resize_size`.

    Args:
        file: PNG, JPEG or WebP file.
        resize_size: length of the shorter side in pixels, at least 224.
        max_pixels: maximum width times height.

    Raises:
        InvalidInput: the file has another format, is damaged, or has too many pixels.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(file), formats=FORMATS)
    except Exception:  # Pillow's parsers raise many types
        raise InvalidInput(f"expected a PNG, JPEG or WebP file, got {len(file)} bytes of another format") from None
    if image.width * image.height > max_pixels:
        raise InvalidInput(f"expected at most {max_pixels} pixels, got {image.width} x {image.height}")
    try:
        image.load()
        image = ImageOps.exif_transpose(image).convert("RGB")
    except Exception:
        raise InvalidInput(f"expected a complete image file, got {len(file)} damaged bytes") from None
    return middle(image, resize_size)


def middle(image: Image.Image, resize_size: int) -> npt.NDArray[np.uint8]:
    """Return the centre crop, (224, 224, 3) uint8, within 2 of scaling and then cropping, but scaling only the crop."""
    shorter = min(image.size)
    scaled = [resize_size * side // shorter for side in image.size]
    offsets = [round((side - CROP) / 2) for side in scaled]
    factors = [side / new for side, new in zip(image.size, scaled, strict=True)]
    left, top = (offset * factor for offset, factor in zip(offsets, factors, strict=True))
    width, height = (CROP * factor for factor in factors)
    box = (left, top, min(left + width, image.width), min(top + height, image.height))
    return np.asarray(image.resize((CROP, CROP), Image.Resampling.BILINEAR, box=box))
