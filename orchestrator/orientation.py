"""Orientation of image files: how the stored pixels are turned and mirrored to be displayed.

The rule is Chromium's, so that a mask fits the picture that a browser shows. An image is turned by
the EXIF in a JPEG file's first APP1 segment of that kind, and by the EXIF in a PNG file's first
`eXIf` chunk, if it comes before the pixels. Nothing else turns an image: no EXIF in WebP, no XMP,
no text chunk. tests/browser/test_orientation.py compares the rule with a browser, and the client
has a copy of this module, which shares no code with the server.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Literal

NORMAL = 1
"""Orientation of a file that does not ask to be turned."""
SWAPPING = range(5, 9)
"""Orientations that swap width and height."""

JPEG_START, PNG_START = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
JPEG_SEGMENT = re.compile(rb"\xff([\xc0-\xcf\xda-\xef\xfe])")
"""JPEG marker that a length follows. Between segments, decoders skip all other bytes."""
START_OF_SCAN, APP1 = b"\xda", b"\xe1"
EXIF_SIGNATURE = b"Exif\0"
EXIF_SIGNATURE_BYTES = 6
"""The signature and a byte of any value."""
MAX_PNG_EXIF_BYTES = 2**22
"""Chromium ignores a larger `eXIf` chunk."""

ByteOrder = Literal["little", "big"]
BYTE_ORDERS: dict[bytes, ByteOrder] = {b"II*\0": "little", b"MM\0*": "big"}
"""Byte order by the first bytes of EXIF."""
ENTRY_BYTES = 12
SHORT, LONG = 3, 4
ORIENTATION_ENTRY, EXIF_DIRECTORY_ENTRY = (0x0112, SHORT, 1), (0x8769, LONG, 1)
"""Tag, type and number of values of an entry. Entries of other types are ignored."""


def read_orientation(file: bytes) -> int:
    """Return the orientation that applies to an image file: an EXIF orientation, 1 to 8."""
    exif = b""
    if file.startswith(JPEG_START):
        exif = _exif_of_jpeg(file)
    elif file.startswith(PNG_START):
        exif = _exif_of_png(file)
    order = BYTE_ORDERS.get(exif[:4])
    if order is None:
        return NORMAL
    root = int.from_bytes(exif[4:8], order)
    return _orientation_in(exif, order, root, in_root=True) or NORMAL


def displayed_size(size_hw: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Return height and width of an image as displayed, by those of the stored pixels."""
    height, width = size_hw
    return (width, height) if orientation in SWAPPING else (height, width)


def _exif_of_jpeg(file: bytes) -> bytes:
    """Return the first EXIF before the first scan, without its signature."""
    segment = JPEG_SEGMENT.search(file, len(JPEG_START))
    while segment is not None and segment[1] != START_OF_SCAN:
        start = segment.end()
        length = int.from_bytes(file[start : start + 2], "big")
        end = start + max(length, 2)
        content = file[start + 2 : end]
        is_exif = segment[1] == APP1 and content.startswith(EXIF_SIGNATURE)
        if is_exif and len(content) > EXIF_SIGNATURE_BYTES:
            return content[EXIF_SIGNATURE_BYTES:]
        segment = JPEG_SEGMENT.search(file, end)
    return b""


def _exif_of_png(file: bytes) -> bytes:
    """Return the first EXIF before the pixels whose checksum is right."""
    offset = len(PNG_START)
    while offset < len(file):
        length = int.from_bytes(file[offset : offset + 4], "big")
        name = file[offset + 4 : offset + 8]
        end = offset + 8 + length
        if name == b"IDAT":
            break
        if name == b"eXIf" and zlib.crc32(file[offset + 4 : end]) == int.from_bytes(
            file[end : end + 4], "big"
        ):
            return file[offset + 8 : end] if length <= MAX_PNG_EXIF_BYTES else b""
        offset = end + 4
    return b""


def _orientation_in(exif: bytes, order: ByteOrder, start: int, *, in_root: bool) -> int | None:
    """Return the first valid orientation in a directory, or in the EXIF directory that the root
    names; else None.
    """
    for tag, kind, count, value in _entries(exif, order, start):
        if (tag, kind, count) == ORIENTATION_ENTRY:
            orientation = int.from_bytes(value[:2], order)
            if 1 <= orientation <= 8:
                return orientation
        elif in_root and (tag, kind, count) == EXIF_DIRECTORY_ENTRY:
            in_root = False  # only the first of several counts
            nested = _orientation_in(exif, order, int.from_bytes(value, order), in_root=False)
            if nested is not None:
                return nested
    return None


def _entries(exif: bytes, order: ByteOrder, start: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Return tag, type, number of values and value or offset of a directory's complete entries."""
    first = start + 2
    count = int.from_bytes(exif[start:first], order)
    complete = max(0, min(count, (len(exif) - first) // ENTRY_BYTES))
    entries = exif[first : first + complete * ENTRY_BYTES]
    return struct.iter_unpack(f"{'<' if order == 'little' else '>'}HHI4s", entries)
