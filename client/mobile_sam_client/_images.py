"""Conversion of image arguments to the bytes that are sent.

Files are sent unchanged, and the service turns them as browsers do. PIL images and arrays are sent
as PNG without EXIF, so that masks have the shape of the array.
"""

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from mobile_sam_client._arrays import Pixels
from mobile_sam_client._depth import Samples, is_16_bit, read_samples, sample_range, to_8_bits
from mobile_sam_client._orientation import displayed_size, read_orientation
from mobile_sam_client._pictures import encode, encode_16_bit_rgb
from mobile_sam_client._results import Embedding

ImageInput: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | npt.NDArray[Any] | Embedding
"""An image to send:

- a path or the bytes of a PNG, JPEG or WebP file: turned as browsers do, by EXIF in JPEG and PNG;
  HEIC, which is sent as JPEG, needs the extra `heic`;
- a PIL image: the pixels of `numpy.asarray(image)`, without EXIF orientation and transparency, so
  that masks fit `image.size`;
- an array: (H, W, 3) RGB, (H, W) grey or (H, W, 4) RGBA, uint8 or uint16; alpha is dropped;
- an `Embedding`, returned by `embed`.

Samples of 16 bits that lie close together are stretched to 8 bits, and `sample_range` of a result
says which became 0 and 255.
"""

EXPECTED_ARRAY = "(H, W, 3) RGB, (H, W) grey or (H, W, 4) RGBA, uint8 or uint16"
GREY_MODES = ("1", "L", "LA")
RGB_MODES = ("RGB", "RGBX", "CMYK", "YCbCr", "HSV")
ALPHA_MODES = {"RGBA": "RGBA", "P": "RGBA", "PA": "RGBA", "RGBa": "RGBA", "La": "LA"}
"""Modes that are converted in two steps: Pillow has no direct conversion, or warns about
transparency."""
MODES_16_BIT = ("I;16", "I;16L", "I;16B", "I;16N", "I")
"""16-bit grey modes; `I` has 32 bits, but files use 16 of them."""

HEIC = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1")
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns the stored pixels into the displayed ones, by EXIF orientation."""


@dataclass(frozen=True)
class ImageFile:
    """An image file to send, or its id."""

    file: bytes
    """A PNG, JPEG or WebP file."""
    sha256: str
    """SHA-256 of the file; empty for an `Embedding`."""
    image_id: str | None = None
    """Id from an `Embedding`, or None."""


def load_source(image: ImageInput) -> ImageFile:
    """Read or encode an image. Blocks while it does.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty, or the array or PIL image has an unsupported shape, type or
            mode.
        TypeError: the argument is not an image.
    """
    if isinstance(image, Embedding):
        return ImageFile(image.file, "", image.image_id)
    if isinstance(image, (Image.Image, np.ndarray)):
        # PNG without EXIF, which would rotate the image again, and without a colour profile.
        file = _encoded(_samples(image))
    elif isinstance(image, (bytes, str, os.PathLike)):
        file = image if isinstance(image, bytes) else Path(image).read_bytes()
        if not file:
            name = "image" if isinstance(image, bytes) else image
            raise ValueError(f"{name}: expected a PNG, JPEG or WebP file, got 0 bytes")
        if file[4:12] in HEIC:
            file = _from_heic(file)
    else:
        expected = "a path, the bytes of a file, a PIL image, a NumPy array or an Embedding"
        raise TypeError(f"image: expected {expected}, got {type(image).__name__}")
    return hashed(file)


def hashed(file: bytes) -> ImageFile:
    """Return an image file with its SHA-256."""
    return ImageFile(file, hashlib.sha256(file).hexdigest())


def displayed_pixels(image: ImageInput) -> Pixels:
    """Return the pixels of an image in the frame of its masks.

    Returns:
        (H, W, 3) uint8 RGB.

    Raises:
        OSError: the file cannot be read.
        ValueError: Pillow cannot decode the file.
    """
    orientation = 1
    if isinstance(image, (np.ndarray, Image.Image)):
        samples = _samples(image)
    else:
        file = load_source(image).file
        orientation = read_orientation(file)
        with _opened(file) as opened:
            samples = read_samples(file) if is_16_bit(opened) else _samples(opened)
    picture = Image.fromarray(_in_8_bits(samples)).convert("RGB")
    if orientation in TURNS:
        picture = picture.transpose(TURNS[orientation])
    return np.asarray(picture)


def displayed_wh(file: bytes) -> tuple[int, int]:
    """Return width and height of an image file as displayed; its pixels are not decoded.

    Raises:
        ValueError: Pillow cannot read the file.
    """
    with _opened(file) as opened:
        height, width = displayed_size((opened.height, opened.width), read_orientation(file))
    return width, height


def _from_heic(file: bytes) -> bytes:
    """Return a HEIC file as JPEG; the decoder has turned its pixels."""
    try:
        import pillow_heif  # noqa: PLC0415 (optional)
    except ImportError:
        command = "pip install './client[heic]'"
        raise ValueError(f"image: HEIC needs another package: {command}") from None
    pillow_heif.register_heif_opener()
    with _opened(file) as opened:
        return encode(Image.fromarray(_in_8_bits(_samples(opened))), ".jpg")


@contextmanager
def _opened(file: bytes) -> Iterator[Image.Image]:
    """Open an image file; errors in reading it are raised as `ValueError`."""
    try:
        with Image.open(io.BytesIO(file)) as opened:
            yield opened
    except UnidentifiedImageError:
        expected = "expected an image file that Pillow can read"
        raise ValueError(f"image: {expected}, got {len(file)} other bytes") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"image: Pillow cannot decode the file: {error}") from error


def _samples(image: Image.Image | npt.NDArray[Any]) -> Pixels | Samples:
    """Return contiguous samples as stored, without alpha.

    Returns:
        (H, W, 3) RGB or (H, W) grey, uint8 or uint16.

    Raises:
        ValueError: the image has an unsupported shape, type or mode, samples outside 16 bits, or
            no pixels.
    """
    array = _array(image) if isinstance(image, Image.Image) else image
    if array.dtype.newbyteorder("=") == np.uint16:
        array = array.astype(np.uint16, copy=False)  # in this machine's byte order
    if array.dtype not in {np.dtype(np.uint8), np.dtype(np.uint16)}:
        got = f"{array.dtype} of shape {array.shape}"
        if array.dtype.kind == "f":
            got += "; convert values of 0 to 1 with (255 * image).astype(numpy.uint8)"
        raise ValueError(f"image: expected {EXPECTED_ARRAY}, got {got}")
    if array.ndim not in {2, 3} or array.shape[2:] not in {(), (3,), (4,)} or not array.size:
        raise ValueError(f"image: expected {EXPECTED_ARRAY}, got shape {array.shape}")
    if array.ndim == 3:
        array = array[..., :3]
    return np.ascontiguousarray(array)


def _array(image: Image.Image) -> Pixels | Samples:
    """Return the samples of a PIL image: (H, W, 3) uint8 RGB, or (H, W) grey, uint8 or uint16."""
    if image.mode in MODES_16_BIT:
        samples = np.asarray(image)
        if samples.size and not (samples.min() >= 0 and samples.max() <= 65_535):
            expected = f"expected samples of 0 to 65535 in a PIL image of mode {image.mode}"
            got = f"{samples.min()} to {samples.max()}"
            raise ValueError(f"image: {expected}, got {got}")
        return samples.astype(np.uint16)
    image = image.convert(ALPHA_MODES.get(image.mode, image.mode))
    if image.mode not in {*GREY_MODES, *RGB_MODES, "RGBA"}:
        modes = ", ".join([*GREY_MODES, *RGB_MODES, *ALPHA_MODES, *MODES_16_BIT])
        raise ValueError(f"image: expected a PIL image of mode {modes}, got {image.mode}")
    return np.asarray(image.convert("L" if image.mode in GREY_MODES else "RGB"))


def _in_8_bits(samples: Pixels | Samples) -> Pixels:
    """Return samples as the service scales them."""
    if samples.dtype == np.uint8:
        return cast(Pixels, samples)
    samples_16_bit = cast(Samples, samples)
    return to_8_bits(samples_16_bit, sample_range(samples_16_bit))


def _encoded(samples: Pixels | Samples) -> bytes:
    """Return samples as a PNG file. Pillow writes no colours of 16 bits."""
    if samples.dtype == np.uint8 or samples.ndim == 2:
        return encode(Image.fromarray(samples))
    return encode_16_bit_rgb(cast(Samples, samples))
