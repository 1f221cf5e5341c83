"""Masks as values of Label Studio's results."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from mobile_sam_client._results import MaskResult

CHANNELS = 4
LENGTH_BITS = (3, 4, 8, 16)
"""Sizes of the lengths of runs, of which each run has the smallest that fits."""
MAX_LENGTHS = [2**bits for bits in LENGTH_BITS]


def new_id() -> str:
    """Return the id of a result."""
    return secrets.token_hex(5)


def brush_rle(mask: npt.NDArray[np.bool_]) -> list[int]:
    """Return a mask in Label Studio's brush RLE: a stream of bits, as bytes, of an RGBA image.

    It begins with the number of values in 32 bits, the size of a value less 1 in 5 bits, and the four sizes of lengths
    less 1 in 4 bits each. A run is a bit 1, the index of its length's size in 2 bits, the length less 1, and the value.

    Args:
        mask: (H, W) bool.
    """
    pixels = mask.ravel()
    starts = np.flatnonzero(np.diff(pixels, prepend=~pixels[:1]))
    lengths = np.diff(starts, append=pixels.size) * CHANNELS
    bits = [f"{pixels.size * CHANNELS:032b}{8 - 1:05b}", *(f"{size - 1:04b}" for size in LENGTH_BITS)]
    for length, inside in zip(lengths.tolist(), pixels[starts].tolist(), strict=True):
        full, rest = divmod(length - 1, MAX_LENGTHS[-1])
        for piece in [*[MAX_LENGTHS[-1]] * full, rest + 1]:
            size = bisect_left(MAX_LENGTHS, piece)
            bits.append(f"1{size:02b}{piece - 1:0{LENGTH_BITS[size]}b}{255 * inside:08b}")
    stream = "".join(bits)
    count = len(stream) // 8 + 1  # as Label Studio's encoder, which always pads
    return [*int(stream.ljust(8 * count, "0"), 2).to_bytes(count, "big")]


def _brush(result: MaskResult, _: float) -> list[dict[str, Any]]:
    return [{"format": "rle", "rle": brush_rle(result._decode_mask())}]


def _polygons(result: MaskResult, tolerance: float) -> list[dict[str, Any]]:
    """Return the outer rings, in percent of the image."""
    height, width = result.rle["size"]
    outlines = [outline for outline, *_ in result.polygons(tolerance)]
    return [{"points": (outline * (100 / width, 100 / height)).tolist(), "closed": True} for outline in outlines]


KINDS: dict[str, Callable[[MaskResult, float], list[dict[str, Any]]]] = {
    "brushlabels": _brush,
    "polygonlabels": _polygons,
}
"""Functions from a mask and a tolerance to its values, by type of result."""
