"""Overlays: an image with its objects in colours."""

from __future__ import annotations

import colorsys
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps
from pycocotools import mask as rle_tools

from mobile_sam_client import Rle
from mobile_sam_client._commands.files import write_bytes
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._images import pixels_of

Pixels = npt.NDArray[np.uint8]

GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Hue step that keeps successive colours far apart."""
TINT = 115
"""Opacity of the tint, of 256."""
SUFFIXES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


def displayed_pixels(image: bytes) -> Pixels:
    """Return the pixels of an image file with EXIF orientation applied.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        CommandError: Pillow cannot read the file.
    """
    try:
        with Image.open(io.BytesIO(image)) as opened:
            upright = ImageOps.exif_transpose(opened)
            pixels: Pixels = np.asarray(Image.fromarray(pixels_of(upright)).convert("RGB"))
            return pixels
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CommandError(f"cannot draw on the image: {error}") from error


def draw(pixels: Pixels, rles: Sequence[Rle]) -> Pixels:
    """Tint and outline objects, each in its own colour, with smaller ones on top of larger ones.

    Args:
        pixels: (H, W, 3) uint8 RGB.
        rles: masks in COCO's compressed RLE, of the same height and width.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        CommandError: a mask differs in size from the image.
    """
    labels = _labels(pixels.shape[:2], rles)
    colours = _colours(len(rles))
    tint = np.where(np.arange(len(colours)) > 0, TINT, 0).astype(np.uint16)
    opacity = np.where(_outlines(labels), 256, tint[labels])[..., np.newaxis].astype(np.uint16)
    blended: Pixels = ((pixels * (256 - opacity) + colours[labels] * opacity) >> 8).astype(np.uint8)
    return blended


def encode(picture: Pixels | Image.Image, suffix: str) -> bytes:
    """Encode a picture in the format of a suffix in `SUFFIXES`."""
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    image.save(file, SUFFIXES[suffix.lower()], quality=90, compress_level=1)
    return file.getvalue()


def write_overlay(path: Path, image: bytes, rles: Sequence[Rle]) -> None:
    """Draw objects on an image and write the picture.

    Raises:
        CommandError: the image cannot be read, or the file cannot be written.
    """
    write_bytes(path, encode(draw(displayed_pixels(image), rles), path.suffix))


def _labels(size_hw: tuple[int, ...], rles: Sequence[Rle]) -> npt.NDArray[np.uint16]:
    """Return (H, W) uint16: the number of the topmost object per pixel, counted from 1; 0 for none."""
    labels = np.zeros(size_hw, np.uint16)
    for index in np.argsort([-int(rle_tools.area(rle)) for rle in rles], kind="stable"):
        rle = rles[index]
        height, width = rle["size"]
        if (height, width) != size_hw:
            raise CommandError(f"expected masks of {size_hw[1]} x {size_hw[0]} pixels, got {width} x {height}")
        x, y, width, height = (int(value) for value in rle_tools.toBbox(rle))
        inside = rle_tools.decode(rle)[y : y + height, x : x + width].view(bool)
        labels[y : y + height, x : x + width][inside] = index + 1
    return labels


def _outlines(labels: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_]:
    """Return (H, W) bool: the border pixels of objects, more of them on large images."""
    edge = np.zeros(labels.shape, bool)
    for step in range(1, 2 + max(labels.shape) // 1000):
        across, down = labels[:, step:] != labels[:, :-step], labels[step:] != labels[:-step]
        edge[:, step:] |= across
        edge[:, :-step] |= across
        edge[step:] |= down
        edge[:-step] |= down
    return edge & (labels > 0)


def _colours(count: int) -> npt.NDArray[np.uint16]:
    """Return (count + 1, 3) RGB; the first is black, for the background."""
    bright = [colorsys.hsv_to_rgb(index * GOLDEN_RATIO % 1, 0.6 + 0.4 * (index % 2), 1) for index in range(count)]
    return (np.array([(0, 0, 0), *bright]) * 255).astype(np.uint16)
