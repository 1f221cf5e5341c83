"""PNG files built chunk by chunk, so that any part can be wrong."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row, first column, row step and column step of each pass."""

Samples = npt.NDArray[Any]
"""Integers from 0 to 65535."""


def chunk(name: bytes, data: bytes, crc: int | None = None, length: int | None = None) -> bytes:
    """Return a chunk, optionally with a wrong `crc` or `length`."""
    crc = zlib.crc32(name + data) if crc is None else crc
    return struct.pack(">I", len(data) if length is None else length) + name + data + struct.pack(">I", crc)


def header(
    size_hw: tuple[int, int], colour: int = RGB, depth: int = 8, *, interlaced: int = 0, methods: bytes = b"\0\0"
) -> bytes:
    """Return the chunk IHDR; `methods` are those of compression and filtering."""
    height, width = size_hw
    return chunk(b"IHDR", struct.pack(">IIBB", width, height, depth, colour) + methods + bytes([interlaced]))


def rows(samples: Samples, depth: int = 8) -> bytes:
    """Return the unfiltered rows of a picture.

    Args:
        samples: (H, W, C), each of `depth` bits.
        depth: 1, 2, 4, 8 or 16.
    """
    height = len(samples)
    flat = samples.reshape(height, -1)
    if depth == 16:
        packed = flat.astype(">u2").view(np.uint8).reshape(height, -1)
    else:
        bits = np.unpackbits(flat.astype(np.uint8)[..., None], axis=2)[..., 8 - depth :]
        packed = np.packbits(bits.reshape(height, -1), axis=1)
    return b"".join(b"\0" + row.tobytes() for row in packed)


def interlaced_rows(samples: Samples, depth: int = 8) -> bytes:
    """Return the rows of Adam7's seven passes."""
    passes = [samples[top::down, left::right] for top, left, down, right in ADAM7]
    return b"".join(rows(part, depth) for part in passes if part.size)


def png(
    samples: Samples,
    colour: int = RGB,
    depth: int = 8,
    *,
    before: Sequence[bytes] = (),
    after: Sequence[bytes] = (),
    interlaced: bool = False,
) -> bytes:
    """Return a complete file.

    Args:
        samples: (H, W, C), each of `depth` bits.
        colour: colour type.
        depth: 1, 2, 4, 8 or 16.
        before: chunks between header and pixels.
        after: chunks between pixels and end.
        interlaced: use Adam7.
    """
    data = interlaced_rows(samples, depth) if interlaced else rows(samples, depth)
    return b"".join(
        [
            SIGNATURE,
            header((samples.shape[0], samples.shape[1]), colour, depth, interlaced=int(interlaced)),
            *before,
            chunk(b"IDAT", zlib.compress(data, 9)),
            *after,
            chunk(b"IEND", b""),
        ]
    )
