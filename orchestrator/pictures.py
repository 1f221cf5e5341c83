"""The picture of an answer: masks drawn over the image, or objects cut out of it, as a PNG file.

The PNG encoder (https://www.w3.org/TR/png-3/) is fast rather than compact. ISA-L compresses at its
level 1, a picture in two threads. A picture is compressed in strips that do not depend on each
other, so that the next picture of the same image needs only those strips that were drawn on.
"""

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from orchestrator.arrays import BoolMask

OPACITY = 0.5
COLOURS = (
    (30, 144, 255),
    (255, 99, 71),
    (50, 205, 50),
    (255, 193, 7),
    (186, 85, 211),
    (0, 206, 209),
)
"""RGB, one per object, used in turn."""

WHITE = (255, 255, 255)
MAX_KEPT_PIXELS = 12_500_000
"""Largest image to keep compressed strips for; they need at most as much memory as its pixels."""

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
"""Two threads write a picture in 0.6 of the time of one, and are no slower than one on a busy
machine."""

Pixels = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]

_pool = ThreadPoolExecutor(THREADS)  # starts its threads at the first use


class Strip(NamedTuple):
    """Some rows of a picture, compressed."""

    chunk: bytes
    """A whole IDAT chunk."""
    adler32: int
    nbytes: int
    """Size of the filtered rows."""


class Picture:
    """The `segmented_image` part, drawn object by object."""

    def __init__(self, image: Pixels, style: str, strips: dict[int, Strip] | None = None) -> None:
        """Start from the image.

        Args:
            image: (H, W, 3) uint8 RGB; not changed.
            style: `overlay`: objects tinted and outlined; `cutout`: RGBA, transparent outside the
                objects.
            strips: strips kept from an earlier overlay of this image, as `encode_png` takes them;
                None to keep none.
        """
        height, width = image.shape[:2]
        self._drawn = image.copy() if style == "overlay" else image
        self._inside = np.zeros((height, width), bool) if style == "cutout" else None
        self._strips = strips if height * width <= MAX_KEPT_PIXELS else None
        self._changed = np.zeros(height, bool)
        self._objects = 0

    def add(self, mask: BoolMask) -> None:
        """Draw the next object's mask, (H, W) bool."""
        if self._inside is None:
            self._changed[overlay(self._drawn, mask, COLOURS[self._objects % len(COLOURS)])] = True
        else:
            self._inside |= mask
        self._objects += 1

    def encode(self) -> bytes:
        """Return the picture as a PNG file."""
        if self._inside is None:
            return encode_png(self._drawn, self._changed, self._strips)
        return encode_png(
            np.asarray(
                cv2.merge([self._drawn, self._inside.view(np.uint8) * np.uint8(255)]), np.uint8
            )
        )


def overlay(picture: Pixels, mask: BoolMask, colour: Colour) -> slice:
    """Tint a mask and outline it in white and its colour, in place.

    Return the range of rows that may have changed.

    Args:
        picture: (H, W, 3) uint8 RGB.
        mask: (H, W) bool.
        colour: RGB.
    """
    line = _line_width(picture.shape[0], picture.shape[1])
    x, y, width, height = cv2.boundingRect(mask.view(np.uint8))
    if not width:
        return slice(0)
    margin = 2 * line + 1
    rows = slice(max(0, y - margin), y + height + margin)
    columns = slice(max(0, x - margin), x + width + margin)
    part, inside = picture[rows, columns], np.ascontiguousarray(mask[rows, columns]).view(np.uint8)
    tinted = cv2.addWeighted(part, 1 - OPACITY, _solid_like(part, colour), OPACITY, 0)
    cv2.copyTo(tinted, inside, part)
    for reach, shade in ((2 * line, WHITE), (line, colour)):
        # With a rectangular kernel, the time depends neither on its size nor on the length of the
        # outline.
        kernel = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
        outline = cv2.morphologyEx(inside, cv2.MORPH_GRADIENT, kernel)
        cv2.copyTo(_solid_like(part, shade), outline, part)
    return rows


def _solid_like(picture: Pixels, colour: Colour) -> Pixels:
    """Return a picture of one colour in the shape of another, thirty times as fast as assigning
    `solid[:] = colour`.
    """
    solid = np.empty_like(picture)
    solid.reshape(len(picture), -1)[:] = np.tile(np.array(colour, np.uint8), picture.shape[1])
    return solid


def _line_width(height: int, width: int) -> int:
    """Return half the width of an outline, in pixels."""
    return max(1, min(4, round(min(height, width) / 600)))


def encode_png(
    pixels: Pixels,
    changed: npt.NDArray[np.bool_] | None = None,
    originals: dict[int, Strip] | None = None,
) -> bytes:
    """Return a picture as a PNG file.

    Args:
        pixels: (H, W, 3) RGB or (H, W, 4) RGBA, uint8.
        changed: (H,) bool, rows that differ from the original if this picture is a copy; None for
            all.
        originals: compressed strips of the original, by their first row. A strip without a changed
            row is read from here, or added.
    """
    height, width, channels = pixels.shape
    flat = pixels.reshape(height, width * channels)
    step = max(1, STRIP_BYTES // (width * channels))
    tops = range(0, height, step)
    originals = {} if originals is None else originals

    def has_changed(top: int) -> bool:
        # The filter of a row depends on the row above.
        return changed is None or bool(changed[max(0, top - 1) : top + step].any())

    changed_tops = {top for top in tops if has_changed(top)}
    missing = [top for top in tops if top in changed_tops or top not in originals]
    shares = [missing[first::THREADS] for first in range(THREADS)]
    compressed: dict[int, Strip] = {}
    for strips_of_thread in _pool.map(partial(_strips, flat, step), shares):
        compressed |= strips_of_thread
    for top, strip in compressed.items():
        if top not in changed_tops:
            originals[top] = strip
    strips = [compressed.get(top) or originals[top] for top in tops]
    end = LAST_BLOCK + struct.pack(">I", _joined_adler32(strips))
    chunks = [
        _chunk(b"IDAT", ZLIB_HEADER),
        *(strip.chunk for strip in strips),
        _chunk(b"IDAT", end),
    ]
    return _file(width, height, 8, COLOUR_TYPES[channels], chunks)


def _strips(flat: Pixels, step: int, tops: Sequence[int]) -> dict[int, Strip]:
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


def bilevel_rows(bits: Pixels) -> Pixels:
    """Return the rows of a 1-bit PNG: (H, 1 + ceil(W / 8)) uint8.

    Args:
        bits: (H, ceil(W / 8)) uint8, the first pixel in the highest bit.
    """
    height, row_bytes = bits.shape
    rows = np.empty((height, 1 + row_bytes), np.uint8)
    rows[:, 0] = FILTER_NONE
    rows[:, 1:] = bits
    return rows


def encode_bilevel_png(rows: list[Pixels], width: int) -> bytes:
    """Return a black and white PNG file of 1 bit per pixel.

    Args:
        rows: masks as `bilevel_rows` returns them, stacked top to bottom.
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
