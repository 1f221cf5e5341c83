"""PNG files, written quickly rather than small; the format is that of https://www.w3.org/TR/png-3/.

Rows are compressed by ISA-L at its level 1. For a photograph that takes a quarter of the time of OpenCV's encoder, and
the file is a little smaller.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY = 0
COLOUR_TYPES = {3: 2, 4: 6}
"""Of RGB and RGBA, by the number of channels."""
FILTER_NONE, FILTER_UP = 0, 2

Bytes = npt.NDArray[np.uint8]


def png(pixels: Bytes) -> bytes:
    """A picture.

    Args:
        pixels: (H, W, 3) RGB or (H, W, 4) RGBA, uint8.
    """
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    rows = np.empty((height, 1 + width * channels), np.uint8)
    rows[:, 0] = FILTER_UP
    rows[0, 1:] = flat[0]
    np.subtract(flat[1:], flat[:-1], out=rows[1:, 1:])
    return _file(width, height, 8, COLOUR_TYPES[channels], rows)


def packed(mask: npt.NDArray[np.bool_]) -> Bytes:
    """The rows of a mask (H, W) bool as a 1-bit file holds them: (H, 1 + ceil(W / 8)) uint8."""
    height, width = mask.shape
    rows = np.empty((height, 1 + (width + 7) // 8), np.uint8)
    rows[:, 0] = FILTER_NONE
    rows[:, 1:] = np.packbits(mask, axis=1)
    return rows


def bilevel_png(rows: list[Bytes], width: int) -> bytes:
    """A black and white picture of 1 bit a pixel.

    Args:
        rows: what `packed` makes of masks, which will stand one below the other.
        width: of each of them.
    """
    return _file(width, sum(len(part) for part in rows), 1, GREY, np.concatenate(rows))


def _file(width: int, height: int, depth: int, colour_type: int, rows: Bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header), _chunk(b"IDAT", isal_zlib.compress(rows, 1)), _chunk(b"IEND", b"")]
    return b"".join([SIGNATURE, *chunks])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return b"".join([struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib.crc32(data, zlib.crc32(kind)))])
