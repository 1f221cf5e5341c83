"""Masks in Label Studio's brush RLE.

It is a stream of bits, as bytes, of an RGBA image whose channels are all 0 or all 255:

    32 bits                 number of values
    5 bits                  bits of a value, less 1
    4 x 4 bits              bits of run lengths, less 1: `LENGTH_BITS`
    for each run:
        1 bit               1: a run, not single values
        2 bits              index of the width of its length
        3, 4, 8 or 16 bits  length, less 1
        8 bits              value
"""

from bisect import bisect_left

import numpy as np

from mobile_sam_client._arrays import BoolMask

CHANNELS = 4
VALUE_BITS = 8
LENGTH_BITS = (3, 4, 8, 16)
"""Bit widths of run lengths, smallest first."""
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
