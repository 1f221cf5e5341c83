"""Conversion of image arguments to the bytes that are sent.

Files are sent unchanged, and the service applies their EXIF orientation. PIL images and arrays are sent as PNG without
EXIF, so that masks have the shape of the array.
"""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from mobile_sam_client._pictures import Pixels, encode
from mobile_sam_client._results import Embedding

ImageInput: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | npt.NDArray[Any] | Embedding
"""An image to send:

- a path or the bytes of a PNG, JPEG or WebP file: EXIF orientation is applied;
- a PIL image: the pixels of `numpy.asarray(image)`, without EXIF orientation and transparency, so that masks fit
  `image.size`;
- an array: (H, W, 3) uint8 RGB, (H, W) uint8 grey or (H, W, 4) uint8 RGBA; alpha is dropped;
- an `Embedding`, returned by `embed`.
"""

EXPECTED_ARRAY = "(H, W, 3) uint8 RGB, (H, W) uint8 grey or (H, W, 4) uint8 RGBA"
MODE_CONVERSIONS: dict[str, tuple[str, ...]] = {
    "1": ("L",),
    "L": (),
    "LA": ("L",),
    "La": ("LA", "L"),
    "RGB": (),
    "RGBX": ("RGB",),
    "RGBA": ("RGB",),
    "RGBa": ("RGBA", "RGB"),
    "P": ("RGBA", "RGB"),  # through RGBA: converting to RGB directly makes Pillow warn about transparency
    "PA": ("RGBA", "RGB"),
    "CMYK": ("RGB",),
    "YCbCr": ("RGB",),
    "HSV": ("RGB",),
}
"""Steps that convert each Pillow mode to 8-bit grey or RGB."""
MODES_16_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""16-bit grey modes; `I` has 32 bits, but files use 16 of them."""


@dataclass(frozen=True)
class Source:
    """An image file to send, or its id."""

    file: bytes
    """A PNG, JPEG or WebP file."""
    sha256: str
    """SHA-256 of the file; empty for an `Embedding`."""
    image_id: str | None = None
    """Id from an `Embedding`, or None."""


def load_source(image: ImageInput) -> Source:
    """Read or encode an image. Blocks while it does.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty, or the array or PIL image has an unsupported shape, type or mode.
        TypeError: the argument is not an image.
    """
    if isinstance(image, Embedding):
        return Source(image.file, "", image.image_id)
    file = _file_of(image)
    return Source(file, hashlib.sha256(file).hexdigest())


def _file_of(image: object) -> bytes:
    if isinstance(image, bytes):
        return _checked_file(image, "image")
    if isinstance(image, (str, os.PathLike)):
        return _checked_file(Path(image).read_bytes(), str(image))
    if isinstance(image, Image.Image):
        return _png(pixels_of(image))
    if isinstance(image, np.ndarray):
        return _png(_checked_array(image))
    expected = "a path, the bytes of a file, a PIL image, a NumPy array or an Embedding"
    raise TypeError(f"image: expected {expected}, got {type(image).__name__}")


def _checked_file(file: bytes, name: str) -> bytes:
    if not file:
        raise ValueError(f"{name}: expected a PNG, JPEG or WebP file, got 0 bytes")
    return file


def _checked_array(array: npt.NDArray[Any]) -> Pixels:
    """Return the array as (H, W, 3) or (H, W) uint8; alpha is dropped."""
    if array.dtype != np.uint8:
        hint = "; convert values of 0 to 1 with (255 * image).astype(numpy.uint8)" if array.dtype.kind == "f" else ""
        raise ValueError(f"image: expected {EXPECTED_ARRAY}, got {array.dtype} of shape {array.shape}{hint}")
    if array.ndim not in {2, 3} or array.shape[2:] not in {(), (3,), (4,)} or not array.size:
        raise ValueError(f"image: expected {EXPECTED_ARRAY}, got shape {array.shape}")
    return array[..., :3] if array.ndim == 3 else array


def displayed_pixels(image: ImageInput) -> Pixels:
    """Return the pixels of an image in the frame of its masks.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        OSError: the file cannot be read.
        ValueError: Pillow cannot decode the file.
    """
    if isinstance(image, np.ndarray):
        pixels = _checked_array(image)
    elif isinstance(image, Image.Image):
        pixels = pixels_of(image)
    else:
        file = load_source(image).file
        try:
            with Image.open(io.BytesIO(file)) as opened:
                pixels = pixels_of(ImageOps.exif_transpose(opened))
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"image: Pillow cannot decode the file: {error}") from error
    rgb: Pixels = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("RGB"))
    return rgb


def pixels_of(image: Image.Image) -> Pixels:
    """Return the pixels of a PIL image, (H, W, 3) uint8 RGB or (H, W) uint8 grey, without EXIF orientation.

    16-bit samples are scaled to 8 bits, as the service does for files.

    Raises:
        ValueError: the image has an unsupported mode, samples outside 16 bits, or no pixels.
    """
    if image.mode in MODES_16_BIT:
        samples = np.asarray(image)
        if samples.size and not (samples.min() >= 0 and samples.max() <= 65_535):
            got = f"{samples.min()} to {samples.max()}"
            raise ValueError(f"image: expected samples of 0 to 65535 in a PIL image of mode {image.mode}, got {got}")
        return _checked_array((samples >> 8).astype(np.uint8))
    if image.mode not in MODE_CONVERSIONS:
        modes = ", ".join([*MODE_CONVERSIONS, *MODES_16_BIT])
        raise ValueError(f"image: expected a PIL image of mode {modes}, got {image.mode}")
    for mode in MODE_CONVERSIONS[image.mode]:
        image = image.convert(mode)
    return _checked_array(np.asarray(image))


def _png(pixels: Pixels) -> bytes:
    """Return a PNG file without EXIF, which would rotate the image again, and without a colour profile."""
    return encode(Image.fromarray(np.ascontiguousarray(pixels)))
