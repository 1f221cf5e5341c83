"""Pictures of objects on an image, and PNG files."""

from __future__ import annotations

import colorsys
import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as rle_tools

from mobile_sam_client._arrays import BoolMask, Pixels, Rle

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Pillow's names of the image formats by suffix."""
PNG_START = b"\x89PNG\r\n\x1a\n"
"""Signature of a PNG file."""
TRUECOLOUR = 2
"""Colour type of RGB in a PNG file."""
GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Hue step that keeps successive colours far apart."""
OPAQUE = 256
"""Full opacity."""
TINT = 115
"""Opacity of the tint, of `OPAQUE`."""


def draw(pixels: Pixels, rles: Sequence[Rle]) -> Pixels:
    """Tint and outline objects, each in its own colour, with smaller ones on top of larger ones.

    Args:
        pixels: (H, W, 3) uint8 RGB.
        rles: masks in COCO's compressed RLE, of the same height and width.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        ValueError: a mask differs in size from the image.
    """
    labels = label_map(pixels.shape[:2], rles)
    colours = _colours(len(rles))
    tint = np.where(np.arange(len(colours)) > 0, TINT, 0).astype(np.uint16)
    opacity = np.where(_outlines(labels), OPAQUE, tint[labels])[..., np.newaxis].astype(np.uint16)
    weighted = pixels * (OPAQUE - opacity) + colours[labels] * opacity
    blended: Pixels = (weighted // OPAQUE).astype(np.uint8)
    return blended


def encode(image: Image.Image, suffix: str = ".png") -> bytes:
    """Return an image file in the format of a suffix in `FORMATS`.

    It is encoded for speed rather than size.
    """
    file = io.BytesIO()
    image.save(file, FORMATS[suffix.lower()], quality=90, compress_level=1)
    return file.getvalue()


def encode_16_bit_rgb(samples: npt.NDArray[np.uint16]) -> bytes:
    """Return (H, W, 3) uint16 RGB as a PNG file."""
    height, width, channels = samples.shape
    # Each begins with its filter: none.
    rows = np.zeros((height, 1 + 2 * channels * width), np.uint8)
    rows[:, 1:] = samples.astype(">u2").view(np.uint8).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 16, TRUECOLOUR, 0, 0, 0)
    pixels = zlib.compress(rows.tobytes(), 1)
    parts = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    return PNG_START + b"".join(_chunk(name, content) for name, content in parts)


def label_map(size_hw: tuple[int, ...], rles: Sequence[Rle]) -> npt.NDArray[np.uint16]:
    """Return (H, W) uint16: the topmost object per pixel, counted from 1; 0 for none."""
    labels = np.zeros(size_hw, np.uint16)
    areas = np.array([int(rle_tools.area(rle)) for rle in rles])
    for index in np.argsort(-areas, kind="stable"):  # the largest first, below all others
        rle = rles[index]
        height, width = rle["size"]
        if (height, width) != size_hw:
            expected = f"expected masks of {size_hw[1]} x {size_hw[0]} pixels"
            raise ValueError(f"{expected}, got {width} x {height}")
        x, y, width, height = (int(value) for value in rle_tools.toBbox(rle))
        inside = rle_tools.decode(rle)[y : y + height, x : x + width].view(bool)
        labels[y : y + height, x : x + width][inside] = index + 1
    return labels


def _chunk(name: bytes, content: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    checksum = zlib.crc32(content, zlib.crc32(name))
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def _outlines(labels: npt.NDArray[np.uint16]) -> BoolMask:
    """Return (H, W) bool: the border pixels of objects, more of them on large images."""
    edge = np.zeros(labels.shape, bool)
    for step in range(1, 2 + max(labels.shape) // 1000):
        across = labels[:, step:] != labels[:, :-step]
        down = labels[step:] != labels[:-step]
        edge[:, step:] |= across
        edge[:, :-step] |= across
        edge[step:] |= down
        edge[:-step] |= down
    return edge & (labels > 0)


def _colours(count: int) -> npt.NDArray[np.uint16]:
    """Return (count + 1, 3) RGB; the first is black, for the background."""
    colours: list[tuple[float, float, float]] = [(0, 0, 0)]
    for index in range(count):
        hue = index * GOLDEN_RATIO % 1
        saturation = 0.6 + 0.4 * (index % 2)
        colours.append(colorsys.hsv_to_rgb(hue, saturation, 1))
    return (np.array(colours) * 255).astype(np.uint16)
