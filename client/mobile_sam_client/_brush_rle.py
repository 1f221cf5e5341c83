"""Masks in Label Studio's brush RLE.

It is a stream of bits, as bytes, of an RGBA image whose channels are all 0 or all 255:

    32 bits                 number of values
    5 bits                  bits of a value, less 1
    4 x 4 bits              bits of run lengths, less 1: `LENGTH_BITS`
    for each run:
        1 bit               1: a run, not single values
        2 bits              index of the width of its length
        3, 4, 8 or 16 bits  length, less 1
        8 bits              value, or as many values as its length if it is no run
"""

from bisect import bisect_left
from typing import Any

import numpy as np

from mobile_sam_client._arrays import BoolMask

CHANNELS = 4
VALUE_BITS = 8
LENGTH_BITS = (3, 4, 8, 16)
"""Bit widths of run lengths, smallest first."""
MIN_INSIDE = 128
"""Lowest alpha of a pixel in the mask."""
MAX_LENGTHS = [2**bits for bits in LENGTH_BITS]
"""Longest run of each width."""


def brush_rle(mask: BoolMask) -> list[int]:
    """Return a mask, (H, W) bool, as the bytes of its brush RLE."""
    pixels = mask.ravel()
    starts = np.flatnonzero(np.diff(pixels, prepend=~pixels[:1]))
    lengths = np.diff(starts, append=pixels.size) * CHANNELS
    bits = [f"{pixels.size * CHANNELS:032b}{VALUE_BITS - 1:05b}"]
    bits += [f"{width - 1:04b}" for width in LENGTH_BITS]
    for length, is_inside in zip(lengths.tolist(), pixels[starts].tolist(), strict=True):
        bits += _run(length, 255 * is_inside)
    stream = "".join(bits)
    count = len(stream) // 8 + 1  # as Label Studio's encoder, which always pads
    padded = stream.ljust(8 * count, "0")
    return list(int(padded, 2).to_bytes(count, "big"))


def _run(length: int, value: int) -> list[str]:
    """Return the bits of a run, in pieces of at most the longest length."""
    longest = MAX_LENGTHS[-1]
    full_pieces, rest = divmod(length - 1, longest)
    bits = []
    for piece in [longest] * full_pieces + [rest + 1]:
        index = bisect_left(MAX_LENGTHS, piece)
        bits.append(f"1{index:02b}{piece - 1:0{LENGTH_BITS[index]}b}{value:08b}")
    return bits


def read_brush_rle(rle: Any, width: int, height: int) -> BoolMask:
    """Return the mask, (H, W) bool, of a brush RLE.

    Args:
        rle: its bytes, as the list in a JSON document.
        width: width of its image in pixels, which the RLE must have.
        height: height likewise.

    Raises:
        ValueError: the bytes are damaged, or of an image of another size. This is known before
            memory for the mask is taken.
    """
    total = width * height * CHANNELS
    bits = _Bits(_bytes(rle))
    count = bits.read(32)
    if count != total:
        expected = f"{total} as {width} x {height} pixels"
        raise ValueError(f"its mask has {count} values, not {expected}")
    if bits.read(5) != VALUE_BITS - 1:
        raise ValueError("its mask does not have 8 bits per value")
    length_bits = [bits.read(4) + 1 for _ in LENGTH_BITS]
    pixels = np.zeros(width * height, bool)
    at = 0
    while at < total:
        is_run = bits.read(1)
        length = bits.read(length_bits[bits.read(2)]) + 1
        end = at + length
        if end > total:
            raise ValueError("its mask has more values than the image")
        # The pixels whose alpha, the last of their values, is in the piece.
        first, after = at // CHANNELS, end // CHANNELS
        if is_run:
            pixels[first:after] = bits.read(VALUE_BITS) >= MIN_INSIDE
        else:
            values = np.array([bits.read(VALUE_BITS) for _ in range(length)])
            alphas = values[-(at + 1) % CHANNELS :: CHANNELS]
            pixels[first:after] = alphas >= MIN_INSIDE
        at = end
    return pixels.reshape(height, width)


def _bytes(rle: Any) -> bytes:
    if not isinstance(rle, list) or not all(type(byte) is int for byte in rle):
        raise ValueError("its rle must be a list of bytes")
    try:
        return bytes(rle)
    except ValueError:
        raise ValueError("its rle must be a list of bytes") from None


class _Bits:
    """A stream of bits, the highest of each byte first."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def read(self, count: int) -> int:
        """Return the next bits as a number."""
        end = self._at + count
        last = (end + 7) // 8
        if last > len(self._content):
            raise ValueError("its mask ends early")
        chunk = int.from_bytes(self._content[self._at // 8 : last], "big")
        self._at = end
        return chunk >> (last * 8 - end) & (1 << count) - 1
