"""Image files with an orientation wherever files have one, right and damaged, and the one that a
browser applies.

The stored picture has 24 x 16 pixels in four quarters of different colours, so that each
orientation looks different. `tests/browser/test_orientation.py` holds the table to what Chromium
does.
"""

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

SIZE_HW = (16, 24)
CORNERS = ((250, 40, 40), (40, 250, 40), (40, 40, 250), (250, 250, 250))
"""Colours of the stored picture's quarters: top left, top right, bottom left, bottom right."""
GREY_CORNERS = (30, 100, 170, 240)
TURNS: dict[int, tuple[int, int, int, int]] = {
    1: (0, 1, 2, 3),
    2: (1, 0, 3, 2),
    3: (3, 2, 1, 0),
    4: (2, 3, 0, 1),
    5: (0, 2, 1, 3),
    6: (2, 0, 3, 1),
    7: (3, 1, 2, 0),
    8: (1, 3, 0, 2),
}
"""Which stored quarter each displayed one shows, in the order of `CORNERS`, by orientation."""

TYPES = {
    "BYTE": 1,
    "ASCII": 2,
    "LONG": 4,
    "SBYTE": 6,
    "UNDEFINED": 7,
    "SSHORT": 8,
    "SLONG": 9,
    "IFD": 13,
    "none": 0,
}
"""Types of EXIF that an orientation may not have."""
ASCII, SHORT, LONG, RATIONAL = 2, 3, 4, 5
MAKE, ORIENTATION, EXIF_IFD, GPS_IFD = 0x010F, 0x0112, 0x8769, 0x8825
MAX_DIFFERENCE = 60
"""Largest difference of a quarter's colour, which CMYK and lossy files change."""
SIGNATURE = b"Exif\0\0"
XMP_SIGNATURE = b"http://ns.adobe.com/xap/1.0/\0"
LITTLE, BIG = "<", ">"


def entry(tag: int, value: int, kind: int = SHORT, count: int = 1, order: str = LITTLE) -> bytes:
    """Return an entry of an IFD with its value, or with the offset of its values."""
    short = kind in {SHORT, TYPES["SSHORT"]} and count == 1
    return struct.pack(f"{order}HHI{'H2x' if short else 'I'}", tag, kind, count, value)


def ifd(entries: list[bytes], order: str = LITTLE, next_ifd: int = 0) -> bytes:
    """Return a directory of entries."""
    return (
        struct.pack(f"{order}H", len(entries))
        + b"".join(entries)
        + struct.pack(f"{order}I", next_ifd)
    )


def tiff(directory: bytes, order: str = LITTLE, start: int = 8) -> bytes:
    """Return TIFF data whose first directory begins at byte `start`."""
    magic = b"II*\0" if order == LITTLE else b"MM\0*"
    return magic + struct.pack(f"{order}I", start) + bytes(max(0, start - 8)) + directory


def oriented(value: int, kind: int = SHORT, count: int = 1, order: str = LITTLE) -> bytes:
    """Return TIFF data with one entry, the orientation."""
    return tiff(ifd([entry(ORIENTATION, value, kind, count, order)], order), order)


def xmp(value: int) -> bytes:
    """Return an XMP document with an orientation."""
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF'
        ' xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description'
        ' xmlns:tiff="http://ns.adobe.com/tiff/1.0/"'
        f' tiff:Orientation="{value}"/></rdf:RDF></x:xmpmeta>'
    ).encode()


def quarters(colours: tuple[Any, ...] = CORNERS) -> np.ndarray:
    """Return the stored picture, (16, 24, 3) or (16, 24) uint8."""
    corners = np.array(colours, np.uint8)
    grid = corners.reshape(2, 2, *corners.shape[1:])
    return grid.repeat(SIZE_HW[0] // 2, axis=0).repeat(SIZE_HW[1] // 2, axis=1)


def saved(image: Image.Image, file_format: str, **options: Any) -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def segment(payload: bytes, marker: int = 0xE1) -> bytes:
    """Return a segment of a JPEG file, APP1 by default."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload


def chunk(name: bytes, payload: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return (
        struct.pack(">I", len(payload))
        + name
        + payload
        + struct.pack(">I", zlib.crc32(name + payload))
    )


PICTURE = Image.fromarray(quarters())
JPEG_FILE = saved(PICTURE, "JPEG", quality=95, subsampling=0)
JFIF_END = 20
"""End of the JFIF segment, with which Pillow begins."""
PNG_FILE = saved(PICTURE, "PNG")
HEADER_END, PIXELS_END = 33, PNG_FILE.rfind(b"IEND") - 4
"""Ends of a PNG file's first chunk and of its last IDAT chunk."""


def jpeg(*segments: bytes, file: bytes = JPEG_FILE, at: int = 2) -> bytes:
    """Return a JPEG file with segments after its start, or elsewhere."""
    return file[:at] + b"".join(segments) + file[at:]


def exif(data: bytes, signature: bytes = SIGNATURE) -> bytes:
    """Return the APP1 segment of TIFF data."""
    return segment(signature + data)


def png(*chunks: bytes, file: bytes = PNG_FILE, at: int = HEADER_END) -> bytes:
    """Return a PNG file with chunks after its header, or elsewhere."""
    return file[:at] + b"".join(chunks) + file[at:]


def raw_profile(data: bytes) -> bytes:
    """Return EXIF as ImageMagick writes it into text chunks."""
    profile = SIGNATURE + data
    return f"\nexif\n{len(profile):8d}\n{profile.hex()}\n".encode()


def scan_start(file: bytes) -> int:
    """Return the offset of a JPEG file's first scan."""
    return file.index(b"\xff\xda")


def after_scan(file: bytes = JPEG_FILE) -> int:
    """Return the offset of a JPEG file's end marker."""
    return file.rindex(b"\xff\xd9")


def mpo(first: bytes, second: bytes) -> bytes:
    """Return a file of two pictures with the EXIF of each."""
    pictures = [PICTURE.copy(), PICTURE.rotate(180)]
    file = saved(
        pictures[0], "MPO", save_all=True, append_images=pictures[1:], exif=SIGNATURE + first
    )
    at = file.index(b"\xff\xd8", 4) + 2
    return jpeg(exif(second), file=file, at=at)


def damaged_crc(part: bytes) -> bytes:
    """Return a chunk of a PNG file with a wrong checksum."""
    return part[:-1] + bytes([part[-1] ^ 1])


def apng(*chunks: bytes) -> bytes:
    """Return an animation of two frames with chunks after its header."""
    file = saved(
        PICTURE, "PNG", save_all=True, append_images=[PICTURE.rotate(180)], duration=60_000
    )
    return png(*chunks, file=file)


def split_png() -> bytes:
    """Return the PNG file with its pixels in two IDAT chunks."""
    start = PNG_FILE.index(b"IDAT") - 4
    pixels = PNG_FILE[start + 8 : PIXELS_END - 4]
    return (
        PNG_FILE[:start]
        + chunk(b"IDAT", pixels[:9])
        + chunk(b"IDAT", pixels[9:])
        + PNG_FILE[PIXELS_END:]
    )


CAMERA = entry(MAKE, 0x41, ASCII)
"""An entry that says nothing about the orientation."""
TWO = 8 + 2 + 2 * 12 + 4
"""Offset behind a directory of two entries."""
ONE = TWO - 12

EXIF: dict[str, tuple[int, bytes]] = {
    **{f"value {value}": (value, oriented(value)) for value in range(1, 9)},
    **{f"value {value}": (1, oriented(value)) for value in (0, 9, 255, 0x0600, 65535)},
    "big endian": (6, oriented(6, order=BIG)),
    **{f"type {name}": (1, oriented(6, kind)) for name, kind in TYPES.items()},
    **{
        f"type {name}, big endian": (1, oriented(6, kind, order=BIG))
        for name, kind in TYPES.items()
    },
    "type RATIONAL": (1, tiff(ifd([entry(ORIENTATION, 26, RATIONAL)]) + struct.pack("<II", 6, 1))),
    **{f"count {count}": (1, oriented(6, count=count)) for count in (0, 2, 3, 2**32 - 1)},
    "count 2, both inline": (1, tiff(ifd([struct.pack("<HHIHH", ORIENTATION, SHORT, 2, 6, 6)]))),
    "no entries": (1, tiff(ifd([]))),
    "bytes behind the value": (
        6,
        tiff(ifd([struct.pack("<HHIHH", ORIENTATION, SHORT, 1, 6, 0xFFFF)])),
    ),
    "value at the end, big endian": (
        1,
        tiff(ifd([struct.pack(">HHII", ORIENTATION, SHORT, 1, 6)], BIG), BIG),
    ),
    # Other directories.
    "thumbnail only": (1, tiff(ifd([CAMERA], next_ifd=ONE) + ifd([entry(ORIENTATION, 6)]))),
    "thumbnail 3": (
        6,
        tiff(ifd([entry(ORIENTATION, 6)], next_ifd=ONE) + ifd([entry(ORIENTATION, 3)])),
    ),
    "EXIF directory only": (
        6,
        tiff(ifd([entry(EXIF_IFD, ONE, LONG)]) + ifd([entry(ORIENTATION, 6)])),
    ),
    "EXIF directory 6 before 8": (
        6,
        tiff(
            ifd([entry(EXIF_IFD, TWO, LONG), entry(ORIENTATION, 8)]) + ifd([entry(ORIENTATION, 6)])
        ),
    ),
    "EXIF directory 6 after 8": (
        8,
        tiff(
            ifd([entry(ORIENTATION, 8), entry(EXIF_IFD, TWO, LONG)]) + ifd([entry(ORIENTATION, 6)])
        ),
    ),
    "EXIF directory 6 after 0": (
        6,
        tiff(
            ifd([entry(ORIENTATION, 0), entry(EXIF_IFD, TWO, LONG)]) + ifd([entry(ORIENTATION, 6)])
        ),
    ),
    "EXIF directory at an odd offset": (
        6,
        tiff(ifd([entry(EXIF_IFD, ONE + 1, LONG)]) + b"\0" + ifd([entry(ORIENTATION, 6)])),
    ),
    "EXIF directory by SHORT": (
        1,
        tiff(ifd([entry(EXIF_IFD, ONE, SHORT)]) + ifd([entry(ORIENTATION, 6)])),
    ),
    "EXIF directory in another": (
        1,
        tiff(
            ifd([entry(EXIF_IFD, ONE, LONG)])
            + ifd([entry(EXIF_IFD, ONE + 18, LONG)])
            + ifd([entry(ORIENTATION, 6)])
        ),
    ),
    "EXIF directory beyond the end": (
        6,
        tiff(ifd([entry(EXIF_IFD, 5000, LONG), entry(ORIENTATION, 6)])),
    ),
    "EXIF directories, the first 6": (
        6,
        tiff(
            ifd([entry(EXIF_IFD, TWO, LONG), entry(EXIF_IFD, TWO + 18, LONG)])
            + ifd([entry(ORIENTATION, 6)])
            + ifd([entry(ORIENTATION, 3)])
        ),
    ),
    "EXIF directories, the first without": (
        1,
        tiff(
            ifd([entry(EXIF_IFD, TWO, LONG), entry(EXIF_IFD, TWO + 18, LONG)])
            + ifd([CAMERA])
            + ifd([entry(ORIENTATION, 3)])
        ),
    ),
    "EXIF directories, the first by SHORT": (
        3,
        tiff(
            ifd([entry(EXIF_IFD, TWO, SHORT), entry(EXIF_IFD, TWO, LONG)])
            + ifd([entry(ORIENTATION, 3)])
        ),
    ),
    "GPS directory only": (
        1,
        tiff(ifd([entry(GPS_IFD, ONE, LONG)]) + ifd([entry(ORIENTATION, 6)])),
    ),
    # Order of the entries.
    "unsorted": (6, tiff(ifd([entry(0x8298, 0, ASCII), entry(ORIENTATION, 6), CAMERA]))),
    "6 and 3": (6, tiff(ifd([entry(ORIENTATION, 6), entry(ORIENTATION, 3)]))),
    "1 and 6": (1, tiff(ifd([entry(ORIENTATION, 1), entry(ORIENTATION, 6)]))),
    "0 and 6": (6, tiff(ifd([entry(ORIENTATION, 0), entry(ORIENTATION, 6)]))),
    "9 and 6": (6, tiff(ifd([entry(ORIENTATION, 9), entry(ORIENTATION, 6)]))),
    "LONG 3 and 6": (6, tiff(ifd([entry(ORIENTATION, 3, LONG), entry(ORIENTATION, 6)]))),
    # Damage.
    **{
        f"cut to {size} bytes": (6 if size >= 22 else 1, oriented(6)[:size])
        for size in range(1, 26)
    },
    **{
        f"second entry cut to {size} bytes": (
            6 if size >= 34 else 1,
            tiff(ifd([CAMERA, entry(ORIENTATION, 6)]))[:size],
        )
        for size in range(22, 38, 3)
    },
    "more entries than bytes": (6, tiff(struct.pack("<H", 65535) + entry(ORIENTATION, 6))),
    "zeros as entries": (6, tiff(struct.pack("<H", 200) + entry(ORIENTATION, 6) + bytes(500))),
    **{
        f"directory at {start}": (6, tiff(ifd([entry(ORIENTATION, 6)]), start=start))
        for start in (9, 10, 1000)
    },
    "directory beyond the end": (
        1,
        b"II*\0" + struct.pack("<I", 5000) + ifd([entry(ORIENTATION, 6)]),
    ),
    "directory at the largest offset": (
        1,
        b"II*\0" + struct.pack("<I", 2**32 - 1) + ifd([entry(ORIENTATION, 6)]),
    ),
    "directory in the header": (
        6,
        b"II*\0" + struct.pack("<I", 4) + bytes(10) + entry(ORIENTATION, 6) + bytes(8),
    ),
    "directory whose next is itself": (1, tiff(ifd([CAMERA], next_ifd=8))),
    "directory whose EXIF is itself": (1, tiff(ifd([entry(EXIF_IFD, 8, LONG)]))),
    "directory whose EXIF is itself, and 6": (
        6,
        tiff(ifd([entry(EXIF_IFD, 8, LONG), entry(ORIENTATION, 6)])),
    ),
    "BigTIFF": (1, b"II+\0" + oriented(6)[4:]),
    "IM as byte order": (1, b"IM*\0" + oriented(6)[4:]),
    "magic number of the other byte order": (1, b"II\0*" + oriented(6)[4:]),
    "no EXIF": (1, b"some other text"),
}
"""EXIF by what is special about it, and the orientation that it stands for."""

GREY = Image.fromarray(quarters(GREY_CORNERS))
PROGRESSIVE = saved(PICTURE, "JPEG", quality=95, subsampling=0, progressive=True)
SECOND_SCAN = PROGRESSIVE.index(b"\xff\xda", scan_start(PROGRESSIVE) + 2)
SIX, THREE, NONE = exif(oriented(6)), exif(oriented(3)), exif(tiff(ifd([])))
XMP_SIX = segment(XMP_SIGNATURE + xmp(6))

JPEGS: dict[str, tuple[int, bytes]] = {
    **{
        f"JPEG, {name}": (orientation, jpeg(exif(data)))
        for name, (orientation, data) in EXIF.items()
    },
    # Signature and segment.
    "JPEG, signature with another last byte": (6, jpeg(exif(oriented(6), b"Exif\0\xff"))),
    "JPEG, signature in capitals": (1, jpeg(exif(oriented(6), b"EXIF\0\0"))),
    "JPEG, signature without zeros": (1, jpeg(exif(oriented(6), b"Exif"))),
    "JPEG, signature with one zero": (1, jpeg(exif(oriented(6), b"Exif\0"))),
    **{
        f"JPEG, EXIF in a segment {marker:X}": (1, jpeg(segment(SIGNATURE + oriented(6), marker)))
        for marker in (0xE0, 0xE2, 0xED, 0xFE)
    },
    "JPEG, EXIF in a comment's content": (1, jpeg(segment(b"abc" + SIX, 0xFE))),
    "JPEG, EXIF in the thumbnail": (1, jpeg(exif(tiff(ifd([CAMERA])) + jpeg(SIX)))),
    "JPEG, EXIF of the largest size": (6, jpeg(exif(oriented(6) + bytes(65535 - 2 - 6 - 26)))),
    "JPEG, directory at the end of the largest EXIF": (
        6,
        jpeg(exif(tiff(ifd([entry(ORIENTATION, 6)]), start=65535 - 2 - 6 - 18))),
    ),
    # Several segments.
    "JPEG, 6 and 3": (6, jpeg(SIX, THREE)),
    "JPEG, none and 6": (1, jpeg(NONE, SIX)),
    "JPEG, 0 and 6": (1, jpeg(exif(oriented(0)), SIX)),
    "JPEG, LONG 3 and 6": (1, jpeg(exif(oriented(3, LONG)), SIX)),
    "JPEG, signature alone and 6": (6, jpeg(segment(SIGNATURE), SIX)),
    "JPEG, signature with one byte and 6": (1, jpeg(segment(SIGNATURE + b"x"), SIX)),
    "JPEG, half a signature and 6": (6, jpeg(segment(b"Exif"), SIX)),
    "JPEG, EXIF in two parts": (1, jpeg(exif(oriented(6)[:12]), exif(oriented(6)[12:]))),
    "JPEG, XMP 6": (1, jpeg(XMP_SIX)),
    "JPEG, XMP 6 and EXIF 3": (3, jpeg(XMP_SIX, THREE)),
    "JPEG, EXIF 1 and XMP 6": (1, jpeg(exif(oriented(1)), XMP_SIX)),
    # Place.
    "JPEG, JFIF first": (6, jpeg(SIX, at=JFIF_END)),
    "JPEG, no JFIF": (6, jpeg(SIX, file=JPEG_FILE[:2] + JPEG_FILE[JFIF_END:])),
    "JPEG, after the tables": (6, jpeg(SIX, at=JPEG_FILE.index(b"\xff\xc0"))),
    "JPEG, after the frame's header": (6, jpeg(SIX, at=JPEG_FILE.index(b"\xff\xc4"))),
    "JPEG, right before the scan": (6, jpeg(SIX, at=scan_start(JPEG_FILE))),
    "JPEG, after the scan": (1, jpeg(SIX, at=after_scan())),
    "JPEG, after the end": (1, JPEG_FILE + SIX),
    "JPEG, between scans": (1, jpeg(SIX, file=PROGRESSIVE, at=SECOND_SCAN)),
    "JPEG, before and between scans": (
        3,
        jpeg(THREE, file=jpeg(SIX, file=PROGRESSIVE, at=SECOND_SCAN)),
    ),
    # What comes before it.
    **{
        f"JPEG, {name} before": (6, jpeg(before, SIX, at=JFIF_END))
        for name, before in {
            "junk": b"junk",
            "fill bytes": b"\xff\xff\xff",
            "a restart marker": b"\xff\xd0",
            "a marker without a length": b"\xff\x01",
            "a stuffed byte": b"\xff\0",
            "a segment of length 0": b"\xff\xe5\0\0",
            "a segment of length 1": b"\xff\xfe\0\1",
            "an empty segment": b"\xff\xe1\0\2",
            "Adobe's segment": segment(b"Adobe\0d\0\0\0\0\1", 0xEE),
            "a list of pictures": segment(b"MPF\0" + oriented(3), 0xE2),
            "many segments": segment(b"abc") * 300,
        }.items()
    },
    # Kinds of JPEG.
    "JPEG, progressive": (6, jpeg(SIX, file=PROGRESSIVE)),
    "JPEG, grey": (6, jpeg(SIX, file=saved(GREY, "JPEG", quality=95))),
    "JPEG, CMYK": (
        6,
        jpeg(SIX, file=saved(PICTURE.convert("CMYK"), "JPEG", quality=95, subsampling=0)),
    ),
    "JPEG, with a profile": (
        6,
        jpeg(SIX, file=saved(PICTURE, "JPEG", quality=95, icc_profile=bytes(3000))),
    ),
    "MPO, 6 and 3": (6, mpo(oriented(6), oriented(3))),
    "MPO, none and 6": (1, mpo(tiff(ifd([])), oriented(6))),
}

PALETTE = saved(PICTURE.quantize(4), "PNG")
IN_TWO, ANIMATION = split_png(), apng()
SIX_CHUNK, THREE_CHUNK = chunk(b"eXIf", oriented(6)), chunk(b"eXIf", oriented(3))
RAW = raw_profile(oriented(6))

PNGS: dict[str, tuple[int, bytes]] = {
    **{
        f"PNG, {name}": (orientation, png(chunk(b"eXIf", data)))
        for name, (orientation, data) in EXIF.items()
    },
    "PNG, signature of JPEG": (1, png(chunk(b"eXIf", SIGNATURE + oriented(6)))),
    "PNG, large": (6, png(chunk(b"eXIf", oriented(6) + bytes(200_000)))),
    "PNG, the largest": (6, png(chunk(b"eXIf", oriented(6) + bytes(2**22 - 26)))),
    "PNG, too large": (1, png(chunk(b"eXIf", oriented(6) + bytes(2**22 - 25)))),
    "PNG, too large and 3": (1, png(chunk(b"eXIf", oriented(6) + bytes(2**22 - 25)), THREE_CHUNK)),
    # Several chunks.
    "PNG, 6 and 3": (6, png(SIX_CHUNK, THREE_CHUNK)),
    "PNG, none and 3": (1, png(chunk(b"eXIf", tiff(ifd([]))), THREE_CHUNK)),
    "PNG, empty and 6": (1, png(chunk(b"eXIf", b""), SIX_CHUNK)),
    "PNG, wrong checksum": (1, png(damaged_crc(SIX_CHUNK))),
    "PNG, wrong checksum and 3": (3, png(damaged_crc(SIX_CHUNK), THREE_CHUNK)),
    "PNG, wrong checksum of another chunk": (
        6,
        png(damaged_crc(chunk(b"tEXt", b"a\0b")), SIX_CHUNK),
    ),
    # Place.
    "PNG, after the pixels": (1, png(SIX_CHUNK, at=PIXELS_END)),
    "PNG, 3 before and 6 after the pixels": (
        3,
        png(THREE_CHUNK, file=png(SIX_CHUNK, at=PIXELS_END)),
    ),
    "PNG, after the end": (1, PNG_FILE + SIX_CHUNK),
    "PNG, pixels in two chunks": (6, png(SIX_CHUNK, file=IN_TWO)),
    "PNG, before the palette": (6, png(SIX_CHUNK, file=PALETTE)),
    "PNG, after the palette": (6, png(SIX_CHUNK, file=PALETTE, at=PALETTE.index(b"IDAT") - 4)),
    # Other chunks.
    **{
        f"PNG, {name.decode()}": (1, png(chunk(name, oriented(6))))
        for name in (b"exIf", b"eXIF", b"caEX")
    },
    "PNG, XMP": (1, png(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(6)))),
    "PNG, tEXt": (1, png(chunk(b"tEXt", b"Raw profile type exif\0" + RAW))),
    "PNG, tEXt of APP1": (1, png(chunk(b"tEXt", b"Raw profile type APP1\0" + RAW))),
    "PNG, zTXt": (1, png(chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(RAW)))),
    "PNG, iTXt": (1, png(chunk(b"iTXt", b"Raw profile type exif\0\0\0\0\0" + RAW))),
    # Kinds of PNG.
    "PNG, grey": (6, png(SIX_CHUNK, file=saved(GREY, "PNG"))),
    "PNG, grey of 16 bits": (
        6,
        png(SIX_CHUNK, file=saved(Image.fromarray(np.asarray(GREY) * np.uint16(257)), "PNG")),
    ),
    "PNG, with alpha": (6, png(SIX_CHUNK, file=saved(PICTURE.convert("RGBA"), "PNG"))),
    "PNG, animation": (6, png(SIX_CHUNK, file=ANIMATION)),
    "PNG, animation, after the first frame": (
        1,
        png(SIX_CHUNK, file=ANIMATION, at=ANIMATION.index(b"fdAT") - 4),
    ),
}


def webps(lossless: bool) -> dict[str, tuple[int, bytes]]:
    """Return WebP files, none of which is turned."""
    options = {"lossless": lossless, "quality": 95}
    frames = {"save_all": True, "append_images": [PICTURE.rotate(180)], "duration": 60_000}
    kind = f"WebP, {'lossless' if lossless else 'lossy'}"
    return {
        f"{kind}, EXIF": (1, saved(PICTURE, "WEBP", **options, exif=SIGNATURE + oriented(6))),
        f"{kind}, EXIF without signature": (1, saved(PICTURE, "WEBP", **options, exif=oriented(6))),
        f"{kind}, XMP": (1, saved(PICTURE, "WEBP", **options, xmp=xmp(6))),
        f"{kind}, EXIF and XMP": (
            1,
            saved(PICTURE, "WEBP", **options, exif=oriented(6), xmp=xmp(6)),
        ),
        f"{kind}, animation": (1, saved(PICTURE, "WEBP", **options, **frames, exif=oriented(6))),
    }


FILES: dict[str, tuple[int, bytes]] = {
    **JPEGS,
    **PNGS,
    **webps(lossless=True),
    **webps(lossless=False),
}
"""Image files by what is special about them, and the orientation that a browser applies."""


def orientations_shown(pixels: np.ndarray) -> list[int]:
    """Return the orientations in which the stored picture looks like these pixels, (H, W, 3)
    uint8: one, if any.
    """
    height, width = pixels.shape[:2]
    centres = pixels[height // 4 :: height // 2, width // 4 :: width // 2].reshape(4, 3).astype(int)
    greys = np.repeat(np.array(GREY_CORNERS)[:, None], 3, axis=1)
    found = []
    for orientation, corners in TURNS.items():
        size_hw = SIZE_HW[::-1] if orientation >= 5 else SIZE_HW
        for colours in (np.array(CORNERS), greys):
            difference = np.abs(centres - colours[list(corners)]).max()
            if (height, width) == size_hw and difference < MAX_DIFFERENCE:
                found.append(orientation)
    return found
