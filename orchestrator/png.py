"""A PNG encoder (https://www.w3.org/TR/png-3/) that is fast rather than compact.

ISA-L compresses the rows at its level 1, those of a picture in several threads. For a photograph that takes a quarter
of the time of OpenCV's encoder or less, and the file is a little smaller.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from orchestrator.threads import map_ranges

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY = 0
COLOUR_TYPES = {3: 2, 4: 6}
"""PNG colour types of RGB and RGBA, by the number of channels."""
FILTER_NONE, FILTER_UP = 0, 2
COMPRESSION_LEVEL = 1
ZLIB_HEADER = b"\x78\x01"
RAW_WINDOW_BITS = -15
"""Window bits of a stream without zlib's header and checksum."""

Bytes = npt.NDArray[np.uint8]


def encode_png(pixels: Bytes) -> bytes:
    """Return a picture as a PNG file.

    Args:
        pixels: (H, W, 3) RGB or (H, W, 4) RGBA, uint8.
    """
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    rows = np.empty((height, 1 + width * channels), np.uint8)

    def compress(top: int, bottom: int) -> bytes:
        below_first = max(top, 1)
        rows[top:bottom, 0] = FILTER_UP
        rows[top, 1:] = flat[top]
        np.subtract(flat[below_first:bottom], flat[below_first - 1 : bottom - 1], out=rows[below_first:bottom, 1:])
        stream = isal_zlib.compressobj(COMPRESSION_LEVEL, isal_zlib.DEFLATED, RAW_WINDOW_BITS)
        end = isal_zlib.Z_FINISH if bottom == height else isal_zlib.Z_SYNC_FLUSH
        return b"".join([stream.compress(rows[top:bottom]), stream.flush(end)])

    streams = map_ranges(compress, height)
    checksum = struct.pack(">I", isal_zlib.adler32(rows))
    return _file(width, height, 8, COLOUR_TYPES[channels], [ZLIB_HEADER, *streams, checksum])


def pack_mask(mask: npt.NDArray[np.bool_]) -> Bytes:
    """Return the rows of a mask (H, W) bool as they stand in a 1-bit PNG: (H, 1 + ceil(W / 8)) uint8."""
    height, width = mask.shape
    rows = np.empty((height, 1 + (width + 7) // 8), np.uint8)
    rows[:, 0] = FILTER_NONE
    rows[:, 1:] = np.packbits(mask, axis=1)
    return rows


def encode_bilevel_png(rows: list[Bytes], width: int) -> bytes:
    """Return a black and white PNG file of 1 bit per pixel.

    Args:
        rows: masks as `pack_mask` returns them, stacked top to bottom.
        width: width of each mask in pixels.
    """
    data = isal_zlib.compress(np.concatenate(rows), COMPRESSION_LEVEL)
    return _file(width, sum(len(part) for part in rows), 1, GREY, [data])


def _file(width: int, height: int, depth: int, colour_type: int, data: list[bytes]) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    chunks = [_chunk(b"IHDR", [header]), _chunk(b"IDAT", data), _chunk(b"IEND", [])]
    return b"".join([SIGNATURE, *(piece for chunk in chunks for piece in chunk)])


def _chunk(kind: bytes, data: list[bytes]) -> list[bytes]:
    checksum = 0
    for piece in (kind, *data):
        checksum = isal_zlib.crc32(piece, checksum)
    return [struct.pack(">I", sum(map(len, data))), kind, *data, struct.pack(">I", checksum)]
