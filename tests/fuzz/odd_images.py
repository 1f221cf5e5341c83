"""What each image of the corpus is, and what a service should make of it. The files lie in `corpus/images`.

The picture is the same wherever there is one: 24 x 32 pixels in four quarters, red, green, blue and yellow, so that a
wrong size, a wrong orientation and exchanged channels show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

COLOURS = ((200, 30, 30), (30, 180, 40), (40, 60, 200), (220, 210, 40))
"""Of the quarters: top left, top right, bottom left, bottom right."""
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
"""How a picture is to be turned before it is stored, for it to be displayed upright, by EXIF orientation."""


@dataclass(frozen=True)
class Odd:
    """A file, and what is right to say of it."""

    data: bytes
    size_hw: tuple[int, int] | None = None
    """Of the displayed image; None: it is refused."""
    status: int | None = None
    """Of the refusal."""
    look: str = "any"
    """`colour`: the four quarters show in their colours; `grey`: in their brightness."""


def legal(data: bytes, size_hw: tuple[int, int] = SIZE_HW, look: str = "colour") -> Odd:
    """A file that is to be read."""
    return Odd(data, size_hw, None, look)


def refused(data: bytes, status: int = 422) -> Odd:
    """A file that is to be refused."""
    return Odd(data, None, status)


def scene() -> npt.NDArray[np.uint8]:
    """(24, 32, 3) uint8 RGB."""
    quarters = np.array(COLOURS, np.uint8).reshape(2, 2, 3)
    return quarters.repeat(SIZE_HW[0] // 2, axis=0).repeat(SIZE_HW[1] // 2, axis=1)


def stored(orientation: int) -> Image.Image:
    """The scene as a file of this EXIF orientation holds it."""
    method = STORED[orientation]
    upright = Image.fromarray(scene())
    return upright if method is None else upright.transpose(method)


def exif(orientation: int) -> bytes:
    """EXIF that says no more than the orientation: a TIFF header and one entry."""
    return tiff(b"\x12\x01\x03\x00\x01\x00\x00\x00" + orientation.to_bytes(2, "little") + b"\0\0")


def tiff(*entries: bytes, offset: int = 8, count: int | None = None, following: int = 0) -> bytes:
    """EXIF in small-endian TIFF.

    Args:
        entries: of 12 bytes each.
        offset: where the header says that they begin.
        count: how many it says there are.
        following: where it says that the next directory begins.
    """
    count = len(entries) if count is None else count
    body = count.to_bytes(2, "little") + b"".join(entries) + following.to_bytes(4, "little")
    return b"II*\0" + offset.to_bytes(4, "little") + body
