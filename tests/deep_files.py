"""PNG files of 16 bits, of every kind that has them."""

import struct
import zlib

import numpy as np

from tests.oriented_files import chunk

GREY, RGB, GREY_ALPHA, RGB_ALPHA = 0, 2, 4, 6
"""Colour types of PNG."""
CHANNELS = {GREY: 1, RGB: 3, GREY_ALPHA: 2, RGB_ALPHA: 4}
PASSES = (
    (0, 0, 8, 8),
    (0, 4, 8, 8),
    (4, 0, 8, 4),
    (0, 2, 4, 4),
    (2, 0, 4, 2),
    (0, 1, 2, 2),
    (1, 0, 2, 1),
)
"""First row and column of the passes of an interlaced file, and the steps."""


def deep_png(
    samples: np.ndarray, colour_type: int, *chunks: bytes, interlaced: bool = False
) -> bytes:
    """Return samples (H, W, channels) uint16 as a PNG file, with further chunks ahead of its
    pixels.
    """
    height, width, channels = samples.shape
    assert channels == CHANNELS[colour_type]
    steps = PASSES if interlaced else ((0, 0, 1, 1),)
    parts = [samples[top::down, left::across] for top, left, down, across in steps]
    pixels = b"".join(filtered(part) for part in parts if part.size)
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, interlaced)
    before = [chunk(b"IHDR", header), *chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [*before, chunk(b"IDAT", zlib.compress(pixels)), chunk(b"IEND", b"")]
    )


def filtered(samples: np.ndarray) -> bytes:
    """Return rows of samples, each with a filter: none, and differences to the left pixel and to
    the row above.
    """
    height, width, channels = samples.shape
    data = samples.astype(">u2").view(np.uint8).reshape(height, width, 2 * channels)
    left = np.zeros_like(data)
    left[:, 1:] = data[:, :-1]
    above = np.zeros_like(data)
    above[1:] = data[:-1]
    rows = np.empty((height, 1 + data[0].size), np.uint8)
    for number, row in enumerate(rows):
        row[0] = number % 3
        row[1:] = (data - [np.zeros_like(data), left, above][number % 3])[number].ravel()
    return rows.tobytes()
