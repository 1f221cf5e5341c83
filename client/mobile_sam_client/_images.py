"""From what a caller calls an image to the bytes that are sent.

Files go as they are, and the service applies their EXIF orientation. Pixels, of PIL images and of arrays, go as
lossless PNG in the frame that they have here, so that a mask has the shape of the array.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from mobile_sam_client._results import Embedding, encode_png

ImageInput: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | npt.NDArray[Any] | Embedding
"""An image to send:

- a path, or the bytes, of a PNG, JPEG or WebP file. Its EXIF orientation is applied;
- a PIL image. Its pixels are sent as `numpy.asarray(image)` shows them: no EXIF orientation is applied, so that the
  mask fits `image.size`, and transparency is dropped;
- an array: (H, W, 3) uint8 RGB, (H, W) uint8 grey or (H, W, 4) uint8 RGBA, of which the alpha is dropped;
- an `Embedding`, which the service has encoded already.
"""

SHAPES = "(H, W, 3) uint8 RGB, (H, W) uint8 grey or (H, W, 4) uint8 RGBA"
MODES: dict[str, tuple[str, ...]] = {
    "1": ("L",),
    "L": (),
    "LA": ("L",),
    "La": ("LA", "L"),
    "RGB": (),
    "RGBX": ("RGB",),
    "RGBA": ("RGB",),
    "RGBa": ("RGBA", "RGB"),
    "P": ("RGBA", "RGB"),  # by way of RGBA, whose alpha is dropped: Pillow warns of transparency that it cannot keep
    "PA": ("RGBA", "RGB"),
    "CMYK": ("RGB",),
    "YCbCr": ("RGB",),
    "HSV": ("RGB",),
}
"""By which conversions an image of each of Pillow's modes becomes grey or RGB of 8 bits."""
SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""Modes of grey with 16 bits; `I` has 32, of which files use 16."""


@dataclass(frozen=True)
class Source:
    """An image as the service takes it."""

    file: bytes
    """A PNG, JPEG or WebP file."""
    sha256: str
    """Of the file."""
    image_id: str | None = None
    """The service's name for it, where the caller brought that along."""


def source_of(image: ImageInput) -> Source:
    """The file of an image. It may take as long as reading or encoding a large one does.

    Raises:
        OSError: the file cannot be read; `FileNotFoundError` where there is none.
        ValueError: no bytes, or an array or PIL image of another kind than is taken.
        TypeError: no image at all.
    """
    if isinstance(image, Embedding):
        return Source(image.file, "", image.image_id)
    file = _file_of(image)
    return Source(file, hashlib.sha256(file).hexdigest())


def _file_of(image: object) -> bytes:
    if isinstance(image, bytes):
        return _not_empty(image, "image")
    if isinstance(image, (str, os.PathLike)):
        return _not_empty(Path(image).read_bytes(), str(image))
    if isinstance(image, Image.Image):
        return _png(pixels_of(image))
    if isinstance(image, np.ndarray):
        return _png(_checked(image))
    expected = "a path, the bytes of a file, a PIL image, a NumPy array or an Embedding"
    raise TypeError(f"image: expected {expected}, got {type(image).__name__}")


def _not_empty(file: bytes, name: str) -> bytes:
    if not file:
        raise ValueError(f"{name}: expected a PNG, JPEG or WebP file, got 0 bytes")
    return file


def _checked(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """An array that the service can take, (H, W, 3) or (H, W) uint8."""
    if array.dtype != np.uint8:
        hint = "; values of 0 to 1 become such by (255 * image).astype(numpy.uint8)" if array.dtype.kind == "f" else ""
        raise ValueError(f"image: expected {SHAPES}, got {array.dtype} of shape {array.shape}{hint}")
    if array.ndim not in {2, 3} or array.shape[2:] not in {(), (3,), (4,)} or not array.size:
        raise ValueError(f"image: expected {SHAPES}, got shape {array.shape}")
    return array[..., :3] if array.ndim == 3 else array


def pixels_of(image: Image.Image) -> npt.NDArray[np.uint8]:
    """The pixels of a PIL image, (H, W, 3) RGB or (H, W) grey, uint8, in the frame of `image.size`.

    16-bit samples are scaled to 8, as the service does with those of a file.

    Raises:
        ValueError: the image is of another mode, has other values, or no pixels.
    """
    if image.mode in SIXTEEN_BITS:
        samples = np.asarray(image)
        if samples.size and not (samples.min() >= 0 and samples.max() <= 65_535):
            got = f"{samples.min()} to {samples.max()}"
            raise ValueError(f"image: expected values of 0 to 65535 in a PIL image of mode {image.mode}, got {got}")
        return _checked((samples >> 8).astype(np.uint8))
    if image.mode not in MODES:
        modes = ", ".join([*MODES, *SIXTEEN_BITS])
        raise ValueError(f"image: expected a PIL image of one of the modes {modes}, got {image.mode}")
    for mode in MODES[image.mode]:
        image = image.convert(mode)
    return _checked(np.asarray(image))


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG file of the pixels alone: no EXIF, which would turn them once more, nor a colour profile."""
    return encode_png(Image.fromarray(np.ascontiguousarray(pixels)))
