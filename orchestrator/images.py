"""Decoding of image files and scaling of pixels to the encoder's input.

The size is read from the header and checked before anything is decoded. "Displayed" means: turned
as its EXIF says.
"""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, JpegImagePlugin, PngImagePlugin

from orchestrator import depth
from orchestrator.orientation import SWAPPING, displayed_size, read_orientation
from orchestrator.problems import (
    IMAGE_TOO_LARGE,
    UNDECODABLE_IMAGE,
    UNREADABLE_IMAGE,
    UNSUPPORTED_IMAGE,
    Rejected,
    rejected,
)
from orchestrator.tensors import FRAME_SIDE, INPUT_IMAGE

FORMATS = ("PNG", "JPEG", "WEBP")
FIELD, READABLE = INPUT_IMAGE.name, "a PNG, JPEG or WebP file"
"""Field that errors name, and what it should be."""
MAX_SIDE_PIXELS = 65_535
"""JPEG's own limit; PNG encoders accept much more."""
FLIPS = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}
"""Flip code of `cv2.flip` by EXIF orientation; orientations from 5 on are transposed first."""
MAGIC = (
    (b"\x89PNG\r\n\x1a\n", 0, "PNG"),
    (b"\xff\xd8\xff", 0, "JPEG"),
    (b"WEBP", 8, "WEBP"),
    (b"GIF8", 0, "GIF"),
    (b"BM", 0, "BMP"),
    (b"II*\0", 0, "TIFF"),
    (b"MM\0*", 0, "TIFF"),
    (b"ftyp", 4, "HEIF or AVIF"),
    (b"\0\0\0\x0cjP", 0, "JPEG 2000"),
    (b"\xff\x0a", 0, "JPEG XL"),
)
"""Magic bytes, their offset and the format, to name the format of a file that cannot be opened."""

MAX_PIXELS_OF_ENCODER = 2**24
"""Larger images are scaled before they are sent to an encoder that scales images: each process
keeps shared memory for the largest one, 50 MB, and the encoder memory of its device."""
MAX_CHUNKS = 50_000
"""Chunks of a PNG file: a tenth of a second to read. At the usual 8 kB of pixels each, they hold
400 MB."""
MAX_SEGMENTS = 1000
"""Segments of a JPEG file besides its scans; colour profile, EXIF and XMP of the largest size have
fewer."""
MAX_SCANS = 50
"""Scans of a JPEG file. Each decodes all pixels but may be as short as 14 bytes. Encoders write 10,
for CMYK 18."""
MAX_JUNK_BYTES = 100_000
"""Bytes before the first scan of a JPEG file that belong to no segment; Pillow looks at each of
them."""
SEGMENT = re.compile(rb"\xff[\xc0-\xc7\xc9-\xcf\xd9-\xef\xfe]")
"""JPEG marker that starts a segment or ends the file."""
START_OF_SCAN, END, SEQUENTIAL = 0xDA, 0xD9, {0xC0, 0xC1}

# `open_image` checks the size itself, and names the limit in its error.
Image.MAX_IMAGE_PIXELS = None
# Colour profiles and texts are not used, and a kilobyte of them can decompress to a megabyte.
PngImagePlugin._safe_zlib_decompress = lambda s: b""  # noqa: ARG005
# Neither is the resolution, and Pillow warns about each damaged entry of EXIF in which it looks for
# it.
JpegImagePlugin.JpegImageFile._read_dpi_from_exif = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005

RGB = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Frame:
    """An image for the encoder: scaled and padded, or as it is if the encoder scales it."""

    pixels: RGB
    """(S, S, 3) uint8 RGB, S = 1024 for most weights; zero right of and below the valid area. With
    a box (H, W, 3), the image."""
    size_hw: tuple[int, int]
    """Height and width of the valid area, in pixels of the frame."""
    box_xyxy: tuple[float, float, float, float] | None = None
    """Part of the pixels that the encoder scales to the valid area."""


@dataclass(frozen=True)
class OpenedImage:
    """An image file whose header has been read."""

    image: Image.Image
    """The image as stored; no pixel has been read."""
    file: bytes
    orientation: int
    """EXIF orientation that applies, 1 to 8."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the displayed image."""
        return displayed_size((self.image.height, self.image.width), self.orientation)


Load = Callable[[OpenedImage], tuple[RGB, depth.SampleRange | None]]
"""Reads stored pixels, (H, W, 3) uint8 RGB, and the range of 16-bit samples."""


def open_image(data: bytes, max_pixels: int) -> OpenedImage:
    """Read the header of an image file.

    Args:
        data: a PNG, JPEG or WebP file.
        max_pixels: largest width times height.

    Raises:
        Rejected: not an image, an unsupported format, too many pixels, or too many parts to read
            quickly.
    """
    if not data:
        raise rejected(UNREADABLE_IMAGE, FIELD, READABLE, "0 bytes")
    _check_chunks(data)
    _check_segments(data)
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except Exception:  # Pillow's parsers raise many types on damaged headers
        raise _unreadable(data) from None
    width, height = image.size
    if max(width, height) > MAX_SIDE_PIXELS:
        expected = f"sides of at most {MAX_SIDE_PIXELS} pixels"
        raise rejected(IMAGE_TOO_LARGE, FIELD, expected, f"{width} x {height}")
    if width * height > max_pixels:
        expected = (
            f"at most {max_pixels} pixels (the client's max_side, or --max-side, scales larger"
            " images down)"
        )
        raise rejected(IMAGE_TOO_LARGE, FIELD, expected, f"{width} x {height} = {width * height}")
    return OpenedImage(image, data, read_orientation(data))


def decode(opened: OpenedImage, load: Load | None = None) -> tuple[RGB, depth.SampleRange | None]:
    """Return the displayed pixels and, for samples of 16 bits, the range of them that was scaled to
    8 bits.

    Args:
        opened: the image.
        load: returns the pixels without their orientation, and their range, for images that are
            decoded at a smaller size.

    Returns:
        (H, W, 3) uint8 RGB, without alpha; and the values that became 0 and 255, None for 8 bits.

    Raises:
        Rejected: the file is truncated or damaged.
    """
    try:
        pixels, sample_range = (load or _load)(opened)
        return _apply_orientation(pixels, opened.orientation), sample_range
    except Exception as error:  # decoders raise many types on damaged data
        reason = (str(error).splitlines() or [""])[0][:120] or type(error).__name__
        raise rejected(UNDECODABLE_IMAGE, FIELD, "a complete image file", reason) from None


@dataclass(frozen=True)
class Preprocessing:
    """Scaling of an image to a square, as the weights' descriptor says."""

    side: int = FRAME_SIDE
    """Side of the encoder's input in pixels."""
    resize: str = "longest_side"
    """`longest_side`: the rest of the square is padded. `squash`: both sides, which loses the
    image's shape."""
    by_encoder: bool = False
    """Whether the encoder scales images, if they are not very large."""

    @property
    def squashes(self) -> bool:
        """Whether an image fills the square."""
        return self.resize == "squash"

    def size_in_frame(self, size_hw: tuple[int, int], side: int = FRAME_SIDE) -> tuple[int, int]:
        """Return height and width of an image in a square with this side, rounded as in the
        official predictor.
        """
        if self.squashes:
            return side, side
        scale = side / max(size_hw)
        height, width = (max(1, int(length * scale + 0.5)) for length in size_hw)
        return height, width

    def valid_hw(self, size_hw: tuple[int, int]) -> tuple[int, int] | None:
        """Return the size of the decoder's frame that shows an image; None if all of it does."""
        return None if self.squashes else self.size_in_frame(size_hw)

    def frame(
        self,
        pixels: RGB,
        size_hw: tuple[int, int] | None = None,
        box_xyxy: tuple[float, float, float, float] | None = None,
    ) -> Frame:
        """Scale and pad an image, (H, W, 3) uint8 RGB, for the encoder, unless that does it.

        Args:
            pixels: the image.
            size_hw: height and width of the image, if `pixels` are fewer.
            box_xyxy: part of the pixels to scale; default: all.
        """
        height, width = self.size_in_frame(size_hw or (pixels.shape[0], pixels.shape[1]), self.side)
        if self.by_encoder and pixels.shape[0] * pixels.shape[1] <= MAX_PIXELS_OF_ENCODER:
            whole = 0, 0, pixels.shape[1], pixels.shape[0]
            return Frame(pixels, (height, width), box_xyxy or whole)
        frame = np.zeros((self.side, self.side, 3), np.uint8)
        if box_xyxy is None and pixels.shape[:2] == (height, width):
            frame[:height, :width] = pixels
        else:
            scaled = Image.fromarray(pixels).resize(
                (width, height), Image.Resampling.BILINEAR, box_xyxy
            )
            frame[:height, :width] = np.asarray(scaled)
        return Frame(frame, (height, width), (0, 0, width, height) if self.by_encoder else None)


LONGEST_SIDE = Preprocessing()


def _load(opened: OpenedImage) -> tuple[RGB, depth.SampleRange | None]:
    if depth.is_16_bit(opened.image):
        return _decode_16_bits(opened.file)
    return _decode_8_bits(opened), None


def _decode_8_bits(opened: OpenedImage) -> RGB:
    pixels = _decode_jpeg_fast(opened)
    if pixels is None:
        image = opened.image
        image.load()
        pixels = np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    return pixels


def _decode_16_bits(file: bytes) -> tuple[RGB, depth.SampleRange]:
    samples = depth.read_samples(file)
    sample_range = depth.sample_range(samples)
    pixels = depth.to_8_bits(samples, sample_range)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    return pixels, sample_range


def _decode_jpeg_fast(opened: OpenedImage) -> RGB | None:
    """Decode a colour JPEG without its orientation: the same pixels as Pillow's in two thirds of
    the time.

    Returns None if the file is not an RGB JPEG or has any flaw; Pillow tolerates more.
    """
    image = opened.image
    if not isinstance(image, JpegImagePlugin.JpegImageFile) or image.mode != "RGB":
        return None
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    try:
        # The buffer bounds the decoded size if the file has two headers that disagree.
        decoded: RGB = simplejpeg.decode_jpeg(opened.file, buffer=pixels)
    except ValueError:
        return None
    return decoded if decoded.shape == pixels.shape else None


def _apply_orientation(pixels: RGB, orientation: int) -> RGB:
    """Turn an image (H, W, 3) by an EXIF orientation."""
    upright = cv2.transpose(pixels) if orientation in SWAPPING else pixels
    if orientation in FLIPS:
        upright = cv2.flip(upright, FLIPS[orientation])
    return np.asarray(upright, np.uint8)


def _check_chunks(data: bytes) -> None:
    """Reject a PNG file with so many chunks that they take decoders much longer than the pixels
    do.
    """
    offset, chunks = 8, 0
    while data.startswith(b"\x89PNG") and offset < len(data):
        offset += 12 + int.from_bytes(data[offset : offset + 4], "big")
        chunks += 1
        if chunks > MAX_CHUNKS:
            raise _too_many_parts(f"PNG file of at most {MAX_CHUNKS} chunks")


def _check_segments(data: bytes) -> None:
    """Reject a JPEG file with so many segments that they take decoders much longer than the
    pixels do.
    """
    offset, junk, segments, scans, components = 2, 0, 0, 0, None
    while data.startswith(b"\xff\xd8") and offset < len(data):
        segment = SEGMENT.search(data, offset)
        start, marker = len(data), END
        if segment:
            start, marker = segment.start(), segment[0][1]
        junk += 0 if scans else start - offset
        offset, head = start + 2, data[start + 2 : start + 10]
        if marker == START_OF_SCAN:
            scans += 1
        elif marker != END:
            segments += 1
        elif scans:
            return
        if marker != END:  # Pillow ignores an end marker before the first scan
            offset += int.from_bytes(head[:2], "big")
        if junk > MAX_JUNK_BYTES or segments > MAX_SEGMENTS or scans > MAX_SCANS:
            limits = (
                f"{MAX_SEGMENTS} segments, {MAX_SCANS} scans and {MAX_JUNK_BYTES} bytes outside"
                " them"
            )
            raise _too_many_parts(f"JPEG file of at most {limits}")
        if marker in SEQUENTIAL:
            components = head[7:8]
        if marker == START_OF_SCAN and head[2:3] == components:
            return  # decoders stop after a scan of all components


def _too_many_parts(expected: str) -> Rejected:
    return rejected(UNREADABLE_IMAGE, FIELD, f"a {expected}", "more")


def _unreadable(data: bytes) -> Rejected:
    kind = next(
        (name for magic, offset, name in MAGIC if data[offset : offset + len(magic)] == magic), None
    )
    if kind is None:
        return rejected(
            UNREADABLE_IMAGE, FIELD, READABLE, f"{len(data)} bytes that are not an image"
        )
    if kind in FORMATS:
        return rejected(
            UNREADABLE_IMAGE,
            FIELD,
            READABLE,
            f"a damaged or truncated {kind} file of {len(data)} bytes",
        )
    return rejected(UNSUPPORTED_IMAGE, FIELD, READABLE, kind)
