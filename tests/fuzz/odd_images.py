"""Common parts of the corpus's images. The files are in `corpus/images`.

All valid files show the same scene: 24 x 32 pixels in four quarters, red, green, blue and yellow, which reveals a wrong
size, a wrong orientation and swapped channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

COLOURS = ((200, 30, 30), (30, 180, 40), (40, 60, 200), (220, 210, 40))
"""Colours of the quarters: top left, top right, bottom left, bottom right."""
SIZE_HW = (24, 32)

METHODS = Image.Transpose
STORED = {
    1: None,
    2: METHODS.FLIP_LEFT_RIGHT,
    3: METHODS.ROTATE_180,
    4: METHODS.FLIP_TOP_BOTTOM,
    5: METHODS.TRANSPOSE,
    6: METHODS.ROTATE_90,
    7: METHODS.TRANSVERSE,
    8: METHODS.ROTATE_270,
}
"""Transposition of the stored picture by EXIF orientation, so that it is displayed upright."""


@dataclass(frozen=True)
class OddImage:
    """Image file with the expected result."""

    data: bytes
    size_hw: tuple[int, int] | None = None
    """Size of the displayed image, or None if the file is rejected."""
    status: int | None = None
    """Status of the rejection."""
    look: str = "any"
    """`colour`: the quarters have their colours; `grey`: their brightness; `any`: not checked."""


def legal(data: bytes, size_hw: tuple[int, int] = SIZE_HW, look: str = "colour") -> OddImage:
    """Return a file that must be read."""
    return OddImage(data, size_hw, None, look)


def refused(data: bytes, status: int = 422) -> OddImage:
    """Return a file that must be rejected."""
    return OddImage(data, None, status)


def scene() -> npt.NDArray[np.uint8]:
    """Return the scene, (24, 32, 3) uint8 RGB."""
    quarters = np.array(COLOURS, np.uint8).reshape(2, 2, 3)
    return quarters.repeat(SIZE_HW[0] // 2, axis=0).repeat(SIZE_HW[1] // 2, axis=1)


def stored(orientation: int) -> Image.Image:
    """Return the scene as stored in a file with this EXIF orientation."""
    method = STORED[orientation]
    upright = Image.fromarray(scene())
    return upright if method is None else upright.transpose(method)


def exif(orientation: int) -> bytes:
    """Return EXIF data with only the orientation."""
    return tiff(b"\x12\x01\x03\x00\x01\x00\x00\x00" + orientation.to_bytes(2, "little") + b"\0\0")


def tiff(*entries: bytes, offset: int = 8, count: int | None = None, following: int = 0) -> bytes:
    """Return EXIF data as little-endian TIFF.

    Args:
        entries: entries of 12 bytes each.
        offset: declared offset of the directory.
        count: declared number of entries; by default the real one.
        following: declared offset of the next directory.
    """
    count = len(entries) if count is None else count
    body = count.to_bytes(2, "little") + b"".join(entries) + following.to_bytes(4, "little")
    return b"II*\0" + offset.to_bytes(4, "little") + body
