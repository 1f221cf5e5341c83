"""A PNG encoder (https://www.w3.org/TR/png-3/) that is fast rather than compact.

ISA-L compresses at its level 1, a picture in two threads. A picture is compressed in strips that do not depend on each
other, so that the next picture of the same image needs only those strips that were drawn on.
"""

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY = 0
COLOUR_TYPES = {3: 2, 4: 6}
"""PNG colour types of RGB and RGBA, by the number of channels."""
FILTER_NONE, FILTER_UP = 0, 2
COMPRESSION_LEVEL = 1
ZLIB_HEADER = b"\x78\x01"
LAST_BLOCK = b"\x03\x00"
"""Empty last block of a deflate stream."""
RAW_WINDOW_BITS = -15
"""Window bits of a stream without zlib's header and checksum."""
STRIP_BYTES = 2**17
"""Pixels of a strip: 24 rows of a photograph. Shorter strips take longer and compress less."""
THREADS = 2
"""Two threads write a picture in 0.6 of the time of one, and are no slower than one on a busy machine."""

Bytes = npt.NDArray[np.uint8]

_pool = ThreadPoolExecutor(THREADS)  # starts its threads at the first use


class Strip(NamedTuple):
    """Some rows of a picture, compressed."""

    chunk: bytes
    """A whole IDAT chunk."""
    adler32: int
    nbytes: int
    """Size of the filtered rows."""


def encode_png(
    pixels: Bytes, changed: npt.NDArray[np.bool_] | None = None, kept: dict[int, Strip] | None = None
) -> bytes:
    """Return a picture as a PNG file.

    Args:
        pixels: (H, W, 3) RGB or (H, W, 4) RGBA, uint8.
        changed: (H,) bool, rows that differ from an image of which this is a copy; None for all.
        kept: compressed strips of that image, by their first row. Those without a changed row are taken from it, or
            added to it.
    """
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    step = max(1, STRIP_BYTES // (width * channels))
    tops, kept = range(0, height, step), {} if kept is None else kept
    # The filter of a row depends on the row above.
    own = {top for top in tops if changed is None or changed[max(0, top - 1) : top + step].any()}
    missing = [top for top in tops if top in own or top not in kept]
    shares = [missing[first::THREADS] for first in range(THREADS)]
    made = {top: strip for part in _pool.map(partial(_strips, flat, step), shares) for top, strip in part.items()}
    kept.update((top, strip) for top, strip in made.items() if top not in own)
    strips = [made.get(top) or kept[top] for top in tops]
    end = LAST_BLOCK + struct.pack(">I", _joined_adler32(strips))
    chunks = [_chunk(b"IDAT", ZLIB_HEADER), *(strip.chunk for strip in strips), _chunk(b"IDAT", end)]
    return _file(width, height, 8, COLOUR_TYPES[channels], chunks)


def _strips(flat: Bytes, step: int, tops: Sequence[int]) -> dict[int, Strip]:
    """Compress the strips that begin at the rows `tops`, `step` rows each; return them by these."""
    strips = {}
    for top in tops:
        part = flat[top : top + step]
        rows = np.empty((len(part), 1 + flat.shape[1]), np.uint8)
        rows[:, 0] = FILTER_UP
        rows[0, 1:] = part[0] - flat[top - 1] if top else part[0]
        np.subtract(part[1:], part[:-1], out=rows[1:, 1:])
        stream = isal_zlib.compressobj(COMPRESSION_LEVEL, isal_zlib.DEFLATED, RAW_WINDOW_BITS)
        data = stream.compress(rows) + stream.flush(isal_zlib.Z_SYNC_FLUSH)
        strips[top] = Strip(_chunk(b"IDAT", data), isal_zlib.adler32(rows), rows.size)
    return strips


def _joined_adler32(strips: Sequence[Strip]) -> int:
    """Return the Adler-32 checksum (RFC 1950) of all strips together."""
    low, high = 1, 0
    for strip in strips:
        high = (high + (strip.adler32 >> 16) + strip.nbytes * (low - 1)) % 65521
        low = (low + (strip.adler32 & 0xFFFF) - 1) % 65521
    return high << 16 | low


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
    return _file(width, sum(len(part) for part in rows), 1, GREY, [_chunk(b"IDAT", data)])


def _file(width: int, height: int, depth: int, colour_type: int, data: list[bytes]) -> bytes:
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))
    return b"".join([SIGNATURE, header, *data, _chunk(b"IEND", b"")])


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = isal_zlib.crc32(data, isal_zlib.crc32(kind))
    return b"".join([struct.pack(">I", len(data)), kind, data, struct.pack(">I", checksum)])
