"""From an encoded file to pixels, and from pixels to the encoder's input.

The size is read from the header and checked before anything is decoded. "Displayed" means: EXIF orientation applied.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mobile_sam_problems import Rejected, rejected_image
from PIL import Image, ImageOps

FRAME = 1024
"""Side of the encoder's square input; an image is scaled so that its longest side is this."""
FORMATS = ("PNG", "JPEG", "WEBP")
ORIENTATION = 0x0112
TRANSPOSED = (5, 6, 7, 8)

# The limit is ours, checked in `open_image`, with an error that says what it is.
Image.MAX_IMAGE_PIXELS = None

RGB = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Frame:
    """An image as the encoder takes it."""

    pixels: RGB
    """(1024, 1024, 3) uint8 RGB; zero right of and below the valid area."""
    size_hw: tuple[int, int]
    """Height and width of the valid area, in pixels of the frame."""


def open_image(data: bytes, max_pixels: int) -> Image.Image:
    """The image, its header read and nothing decoded yet.

    Args:
        data: a PNG, JPEG or WebP file.
        max_pixels: largest width times height.

    Raises:
        Rejected: no image, another format, or too many pixels.
    """
    if not data:
        raise _no_image("0 bytes")
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception:  # Pillow's parsers raise many types on damaged headers
        raise _unreadable(data) from None
    width, height = image.size
    if width * height > max_pixels:
        raise rejected_image(
            413,
            "image-too-large",
            "The image has too many pixels",
            f"at most {max_pixels} pixels",
            f"{width} x {height} = {width * height}",
        )
    return image


def displayed_size_hw(image: Image.Image) -> tuple[int, int]:
    """Height and width with EXIF orientation applied."""
    width, height = image.size
    return (width, height) if _orientation(image) in TRANSPOSED else (height, width)


def decode(image: Image.Image) -> RGB:
    """Pixels as displayed: (H, W, 3) uint8 RGB. Alpha is dropped, 16-bit samples are scaled to 8.

    Raises:
        Rejected: the file is truncated or damaged.
    """
    try:
        image.load()
        if _orientation(image) != 1:
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):
            return _from_16_bit(image)
        return np.asarray(image.convert("RGB"))
    except Rejected:
        raise
    except Exception as error:  # what a decoder raises on damaged data differs by format
        raise rejected_image(
            422, "invalid-image", "The image cannot be decoded", "a complete image file", _reason(error)
        ) from None


def frame_size_hw(size_hw: tuple[int, int]) -> tuple[int, int]:
    """Height and width after scaling the longest side to 1024, rounded as the official predictor does."""
    scale = FRAME / max(size_hw)
    height, width = (max(1, int(side * scale + 0.5)) for side in size_hw)
    return height, width


def to_frame(pixels: RGB) -> Frame:
    """Scale and pad an image for the encoder.

    Args:
        pixels: (H, W, 3) uint8 RGB.
    """
    height, width = frame_size_hw((pixels.shape[0], pixels.shape[1]))
    scaled = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    frame = np.zeros((FRAME, FRAME, 3), np.uint8)
    frame[:height, :width] = np.asarray(scaled)
    return Frame(frame, (height, width))


def _orientation(image: Image.Image) -> int:
    try:
        value: Any = image.getexif().get(ORIENTATION, 1)
    except Exception:  # damaged EXIF says nothing about the orientation
        return 1
    return value if value in range(1, 9) else 1


def _from_16_bit(image: Image.Image) -> RGB:
    """Grey samples of 16 bits as (H, W, 3) uint8; Pillow's own conversion clips instead of scaling."""
    grey = (np.asarray(image).astype(np.int64).clip(0, 65535) >> 8).astype(np.uint8)
    return np.repeat(grey[:, :, None], 3, axis=2)


def _unreadable(data: bytes) -> Rejected:
    try:
        other = Image.open(io.BytesIO(data)).format
    except Exception:
        return _no_image(f"{len(data)} bytes that are no image")
    if other in FORMATS:
        return _no_image(f"a damaged {other} file")
    return rejected_image(
        415, "unsupported-image-format", "The image format is not supported", "a PNG, JPEG or WebP file", f"{other}"
    )


def _no_image(got: str) -> Rejected:
    return rejected_image(422, "invalid-image", "The data is not an image", "a PNG, JPEG or WebP file", got)


def _reason(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0][:120]
    return text or type(error).__name__
