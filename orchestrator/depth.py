"""16-bit images: their samples, and the range of values that is shown in 8 bits.

Cameras and scanners often use a part of 16 bits only: 12-bit data is nearly black. So an image
whose samples lie close together is stretched: the values between the 0.1 and the 99.9 percentile
become 0 to 255. The client has a copy of this module, which shares no code with the server.
"""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, PngImagePlugin

Samples = npt.NDArray[np.uint16]
"""(H, W) grey or (H, W, 3) RGB."""
SampleRange = tuple[int, int]
"""Values that become 0 and 255."""

FULL_RANGE: SampleRange = (0, 65_535)
MIN_WIDE_RANGE = 32_768
"""A range of at least this many values is taken for the full one, and the image is not
stretched."""
CLIPPED_PER_MILLE = 1
"""Samples below and above the range, each of a thousand: dead pixels and highlights do not decide
it."""

UNPACKERS = {
    "I;16B": ("I;16B",),
    "LA;16B": ("RGBA",),
    "RGB;16B": ("RGB;16B", "RGB;16L"),
    "RGBA;16B": ("RGBA;16B", "RGBA;16L"),
}
"""Pillow's unpackers that together give all bytes of a PNG file's samples, by the one that Pillow
chooses.

Pillow keeps the first of the two bytes of a colour sample. Its unpacker for samples of the other
byte order keeps the second one. Grey with alpha has four bytes for each pixel, as many as RGBA.
"""
STRIP_PIXELS = 2**19
"""Pixels that are read, counted or scaled at once, so that temporary arrays stay small."""


def is_16_bit(image: Image.Image) -> bool:
    """Return whether a PNG file that has been opened, but not decoded, has samples of 16 bits."""
    return isinstance(image, PngImagePlugin.PngImageFile) and _unpacker(image) in UNPACKERS


def read_samples(file: bytes) -> Samples:
    """Return the samples of a 16-bit PNG file, without alpha.

    Raises:
        OSError, SyntaxError, ValueError: Pillow cannot decode the file.
    """
    image = _opened(file)
    unpackers = UNPACKERS[_unpacker(image)]
    _decode(image, unpackers[0])
    if unpackers == ("I;16B",):
        return np.asarray(image, np.uint16)
    if unpackers == ("RGBA",):
        return np.asarray(image).view(">u2")[..., 0].astype(np.uint16)
    samples = np.empty((image.height, image.width, 3), np.uint16)
    for part, target in zip(_rows(image), _strips(samples), strict=True):
        np.multiply(part, 256, out=target, dtype=np.uint16)
    image = _opened(file)
    _decode(image, unpackers[1])
    for part, target in zip(_rows(image), _strips(samples), strict=True):
        np.add(target, part, out=target)
    return samples


def sample_range(samples: Samples) -> SampleRange:
    """Return the range of an image: its 0.1 and 99.9 percentiles, or the full range.

    A percentile is the smallest value that at least so many samples do not exceed, channels of
    colour together. The full range is returned for images with at least half of it, and for those
    with a single value.
    """
    counts = np.zeros(FULL_RANGE[1] + 1, np.int64)
    for part in _strips(samples):
        counts += np.bincount(part.ravel(), minlength=len(counts))
    at_most = 1000 * counts.cumsum()
    low, high = np.searchsorted(
        at_most, [CLIPPED_PER_MILLE * samples.size, (1000 - CLIPPED_PER_MILLE) * samples.size]
    )
    if low == high or high - low >= MIN_WIDE_RANGE:
        return FULL_RANGE
    return int(low), int(high)


def to_8_bits(samples: Samples, shown: SampleRange) -> npt.NDArray[np.uint8]:
    """Scale samples to 8 bits: the range becomes 0 to 255, rounded half up, and values outside
    it 0 or 255.
    """
    low, high = shown
    width = high - low
    above = np.arange(FULL_RANGE[1] + 1, dtype=np.int64).clip(low, high) - low
    table = ((2 * 255 * above + width) // (2 * width)).astype(np.uint8)
    scaled = np.empty(samples.shape, np.uint8)
    for part, target in zip(_strips(samples), _strips(scaled), strict=True):
        target[...] = table[part]
    return scaled


def _opened(file: bytes) -> Image.Image:
    return Image.open(io.BytesIO(file), formats=("PNG",))


def _unpacker(image: Image.Image) -> str:
    """Return the unpacker that Pillow has chosen for a file; empty if the file has no pixels."""
    tiles: Any = image.tile  # type: ignore[attr-defined]
    return str(tiles[0].args) if tiles else ""


def _decode(image: Any, unpacker: str) -> None:
    """Decode a file with this unpacker."""
    image.tile = [tile._replace(args=unpacker) for tile in image.tile]
    image.load()


def _strips(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """Yield the rows of an array, a few at a time."""
    rows = _rows_per_strip(array.shape[1])
    return (array[top : top + rows] for top in range(0, len(array), rows))


def _rows(image: Image.Image) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield the rows of a decoded RGB or RGBA image as RGB, as many at a time as `_strips` does."""
    rows = _rows_per_strip(image.width)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        yield np.asarray(image.crop((0, top, image.width, bottom)))[..., :3]


def _rows_per_strip(width: int) -> int:
    return max(1, STRIP_PIXELS // width)
