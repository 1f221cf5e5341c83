"""PNG files of the corpus."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from tests.fuzz.odd_images import COLOURS, SIZE_HW, OddImage, exif, legal, refused, scene, stored, tiff
from tests.fuzz.png_files import (
    GREY,
    GREY_ALPHA,
    PALETTE,
    RGB,
    RGBA,
    SIGNATURE,
    Samples,
    chunk,
    header,
    png,
    rows,
)

ORIENTATION_AS_TEXT = b"\x12\x01\x02\x00\x01\x00\x00\x006\0\0\0"
ORIENTATION_OF_NOTHING = b"\x12\x01\x03\x00\x00\x00\x00\x00\x06\0\0\0"
POINTER_TO_ITSELF = b"\x69\x87\x04\x00\x01\x00\x00\x00\x08\0\0\0"
FAR_AWAY = b"\x0f\x01\x02\x00\xff\xff\xff\x7f\xff\xff\xff\x7f"
XMP = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'


def pngs() -> dict[str, OddImage]:
    """Return all files by name."""
    return {
        f"png/{name}.png": odd for part in (_pixels(), _metadata(), _sizes(), _broken()) for name, odd in part.items()
    }


def _scene() -> Samples:
    return scene().astype(np.uint16)


def _grey() -> Samples:
    """Return the brightness of the scene, (24, 32, 1)."""
    grey: Samples = (scene() @ np.array([0.299, 0.587, 0.114])).astype(np.uint16)[..., None]
    return grey


def _with(samples: Samples, value: int) -> Samples:
    """Append a constant channel."""
    return np.concatenate([samples, np.full((*samples.shape[:2], 1), value, np.uint16)], axis=2)


def _indices() -> Samples:
    """Return the quarter of each pixel of the scene, (24, 32, 1)."""
    return np.arange(4, dtype=np.uint16).reshape(2, 2, 1).repeat(12, axis=0).repeat(16, axis=1)


def _palette() -> bytes:
    return chunk(b"PLTE", bytes(np.array(COLOURS, np.uint8)))


def _pixels() -> dict[str, OddImage]:
    """Return files with every kind of samples."""
    files = {
        "rgb": legal(png(_scene())),
        "rgb-16": legal(png(_scene() * 257, RGB, 16)),
        "rgb-interlaced": legal(png(_scene(), interlaced=True)),
        "rgba-transparent": legal(png(_with(_scene(), 0), RGBA)),
        "rgba-16": legal(png(_with(_scene(), 9) * 257, RGBA, 16)),
        "grey": legal(png(_grey(), GREY), look="grey"),
        "grey-16": legal(png(_grey() * 257, GREY, 16), look="grey"),
        "grey-16-interlaced": legal(png(_grey() * 257, GREY, 16, interlaced=True), look="grey"),
        "grey-4": legal(png(_grey() // 16, GREY, 4), look="grey"),
        "grey-2": legal(png(_grey() // 64, GREY, 2), look="any"),
        "grey-1": legal(png(_grey() // 128, GREY, 1), look="any"),
        "grey-alpha": legal(png(_with(_grey(), 0), GREY_ALPHA), look="grey"),
        "grey-alpha-16": legal(png(_with(_grey(), 255) * 257, GREY_ALPHA, 16), look="grey"),
        "rgb-with-a-transparent-colour": legal(png(_scene(), before=[chunk(b"tRNS", struct.pack(">3H", *COLOURS[0]))])),
        "grey-with-a-transparent-shade": legal(png(_grey(), GREY, before=[chunk(b"tRNS", b"\0\x51")]), look="grey"),
    }
    for depth in (1, 2, 4, 8):
        indices = _indices() % 2**depth
        look = "colour" if depth > 1 else "any"
        files[f"palette-{depth}"] = legal(png(indices, PALETTE, depth, before=[_palette()]), look=look)
    transparent = [_palette(), chunk(b"tRNS", b"\0\x80\xff")]
    files["palette-transparent"] = legal(png(_indices(), PALETTE, before=transparent))
    files["palette-of-too-few"] = legal(png(_indices(), PALETTE, before=[chunk(b"PLTE", b"\xff\0\0")]), look="any")
    files["palette-missing"] = legal(png(_indices(), PALETTE), look="any")
    return files


def _metadata() -> dict[str, OddImage]:
    """Return files with valid and broken metadata."""
    text = zlib.compress(bytes(2**20), 9)
    files = {
        "exif-for-nothing": [chunk(b"eXIf", b"")],
        "exif-of-zeros": [chunk(b"eXIf", bytes(40))],
        "exif-beyond-its-end": [chunk(b"eXIf", tiff(FAR_AWAY))],
        "exif-that-begins-beyond-its-end": [chunk(b"eXIf", tiff(offset=2**32 - 1))],
        "exif-that-points-to-itself": [chunk(b"eXIf", tiff(POINTER_TO_ITSELF, following=8))],
        "exif-of-too-few-entries": [chunk(b"eXIf", tiff(count=60_000))],
        "exif-orientation-9": [chunk(b"eXIf", exif(9))],
        "exif-orientation-0": [chunk(b"eXIf", exif(0))],
        "exif-orientation-as-text": [chunk(b"eXIf", tiff(ORIENTATION_AS_TEXT))],
        "exif-orientation-of-nothing": [chunk(b"eXIf", tiff(ORIENTATION_OF_NOTHING))],
        "exif-entries-that-overlap": [chunk(b"eXIf", _overlapping(300))],
        "profile-that-is-none": [chunk(b"iCCP", b"name\0\0" + zlib.compress(b"no profile"))],
        "profile-that-is-not-compressed": [chunk(b"iCCP", b"name\0\0no zlib")],
        "profiles-one-after-the-other": [chunk(b"iCCP", b"name\0\0" + text)] * 4,
        "text-of-a-megabyte": [chunk(b"zTXt", b"name\0\0" + text)],
        "text-of-a-megabyte-and-wrong": [chunk(b"zTXt", b"name\0\0" + text[:-4] + b"1234")],
        "text-no-utf-8": [chunk(b"iTXt", b"name\0\0\0\0\0\xff\xfe\xfd")],
        "text-international-of-a-megabyte": [chunk(b"iTXt", b"name\0\1\0\0\0" + text)],
        "text-without-a-name": [chunk(b"tEXt", b"no end"), chunk(b"zTXt", b""), chunk(b"iTXt", b"x\0")],
        "exif-in-text-that-is-no-hexadecimal": [chunk(b"tEXt", b"Raw profile type exif\0\n\n\nno hex")],
        "gamma-0": [chunk(b"gAMA", bytes(4)), chunk(b"pHYs", bytes(9)), chunk(b"cHRM", bytes(32))],
        "a-chunk-nobody-knows": [chunk(b"haPy", b"to be here")],
        "hundreds-of-chunks": [chunk(b"haPy", b"")] * 300,
    }
    legal_files = {name: legal(png(_scene(), before=before)) for name, before in files.items()}
    for orientation in range(1, 9):
        turned = np.asarray(stored(orientation)).astype(np.uint16)
        before = [chunk(b"eXIf", exif(orientation))]
        legal_files[f"exif-orientation-{orientation}"] = legal(png(turned, before=before))
    turned = np.asarray(stored(6)).astype(np.uint16)
    xmp = chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)
    legal_files["exif-behind-the-pixels"] = legal(png(turned, after=[chunk(b"eXIf", exif(6))]))
    legal_files["xmp-orientation-6"] = legal(png(turned, before=[xmp]))
    legal_files["animation"] = legal(_animation())
    return legal_files


def _overlapping(count: int) -> bytes:
    """Return EXIF data whose entries all refer to nearly the whole of it."""
    size = 12 * count
    entries = [struct.pack("<HHII", 40_000 + place, 7, size, 8) for place in range(count)]
    return tiff(*entries)


def _animation() -> bytes:
    """Return an animation of two frames: the scene, then green."""
    frame = struct.pack(">IIIIHHBB", SIZE_HW[1], SIZE_HW[0], 0, 0, 1, 10, 0, 0)
    green = zlib.compress(rows(np.full_like(_scene(), 255) * np.array([0, 1, 0], np.uint16)))
    second = [
        chunk(b"fcTL", struct.pack(">I", 1) + frame),
        chunk(b"fdAT", struct.pack(">I", 2) + green),
    ]
    control = [chunk(b"acTL", struct.pack(">II", 2, 0)), chunk(b"fcTL", struct.pack(">I", 0) + frame)]
    return png(_scene(), before=control, after=second)


def _sizes() -> dict[str, OddImage]:
    """Return files from a single pixel to sizes beyond their data."""

    def of_zeros(size_hw: tuple[int, int]) -> bytes:
        return png(np.zeros((*size_hw, 1), np.uint16), GREY, 1)

    def of_header(width: int, height: int) -> bytes:
        return SIGNATURE + header((height, width)) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")

    return {
        "1x1": legal(of_zeros((1, 1)), (1, 1), "any"),
        "1x3000": legal(of_zeros((3000, 1)), (3000, 1), "any"),
        "3000x1": legal(of_zeros((1, 3000)), (1, 3000), "any"),
        "65535x1": legal(of_zeros((1, 65_535)), (1, 65_535), "any"),
        "65536x1": refused(of_zeros((1, 65_536)), 413),
        "interlaced-1x1": legal(png(np.zeros((1, 1, 3), np.uint16), interlaced=True), (1, 1), "any"),
        "interlaced-3x5": legal(png(np.zeros((5, 3, 3), np.uint16), interlaced=True), (5, 3), "any"),
        "bomb-30000x30000": refused(of_header(30_000, 30_000), 413),
        "bomb-2147483647x2147483647": refused(of_header(2**31 - 1, 2**31 - 1), 413),
        "bomb-4294967295x1": refused(of_header(2**32 - 1, 1), 413),
        "0x0": refused(of_header(0, 0)),
        "0x10": refused(of_header(0, 10)),
        "10x0": refused(of_header(10, 0)),
        "4000x4000-without-pixels": refused(of_header(4000, 4000)),
    }


def _broken() -> dict[str, OddImage]:
    """Return files with broken structure or pixels."""
    whole, raw = png(_scene()), rows(_scene())
    data, head, end = zlib.compress(raw, 9), header(SIZE_HW), chunk(b"IEND", b"")
    pixels = chunk(b"IDAT", data)
    place = whole.index(b"IDAT") + 4
    bad = {
        "signature-alone": SIGNATURE,
        "header-alone": SIGNATURE + head,
        "header-cut-off": SIGNATURE + head[:20],
        "header-of-nothing": SIGNATURE + chunk(b"IHDR", b"") + pixels + end,
        "header-crc-wrong": SIGNATURE + chunk(b"IHDR", head[8:-4], crc=1) + pixels + end,
        "header-missing": SIGNATURE + pixels + end,
        "depth-3": SIGNATURE + header(SIZE_HW, depth=3) + pixels + end,
        "colour-5": SIGNATURE + header(SIZE_HW, colour=5) + pixels + end,
        "filter-method-1": SIGNATURE + header(SIZE_HW, methods=b"\0\1") + pixels + end,
        "pixels-missing": SIGNATURE + head + end,
        "pixels-empty": SIGNATURE + head + chunk(b"IDAT", b"") + end,
        "pixels-cut-off": whole[: place + len(data) // 2],
        "pixels-no-zlib": SIGNATURE + head + chunk(b"IDAT", b"\xff" * 60) + end,
        "pixels-filter-9": SIGNATURE + head + chunk(b"IDAT", zlib.compress(b"\x09" + raw[1:])) + end,
        "metadata-of-4-gigabytes": SIGNATURE + head + chunk(b"haPy", b"", length=2**32 - 1) + pixels + end,
        "end-before-the-pixels": SIGNATURE + head + end + pixels,
        "a-chunk-without-a-name": SIGNATURE + head + chunk(b"\0\0\0\0", b"") + pixels + end,
        "gif-in-png": SIGNATURE + b"GIF89a" + bytes(20),
    }
    good = {
        "trailing-garbage": whole + b"\xde\xad\xbe\xef" * 50,
        "trailing-archive": whole + b"PK\x05\x06" + bytes(18),
        "trailing-page": whole + b"<script>alert(1)</script>",
        "pixels-byte-by-byte": SIGNATURE + head + b"".join(chunk(b"IDAT", bytes([byte])) for byte in data) + end,
        "pixels-between-empty-chunks": SIGNATURE + head + chunk(b"IDAT", b"") * 9 + pixels + chunk(b"IDAT", b"") + end,
        "pixels-and-more": SIGNATURE + head + chunk(b"IDAT", zlib.compress(raw * 2)) + end,
        "pixels-crc-wrong": SIGNATURE + head + chunk(b"IDAT", data, crc=1) + end,
        "pixels-length-of-2-gigabytes": SIGNATURE + head + chunk(b"IDAT", data, length=2**31 - 1) + end,
        "pixels-length-of-4-gigabytes": SIGNATURE + head + chunk(b"IDAT", data, length=2**32 - 1) + end,
        "compression-method-1": SIGNATURE + header(SIZE_HW, methods=b"\1\0") + pixels + end,
        "header-twice": SIGNATURE + head + head + pixels + end,
        "header-after-the-pixels": SIGNATURE + head + pixels + header((9000, 9000)) + end,
        "end-missing": SIGNATURE + head + pixels,
        "end-cut-off": whole[:-6],
    }
    # The compressed stream is complete but holds too few pixels: Pillow leaves the rest black.
    half = legal(SIGNATURE + head + chunk(b"IDAT", zlib.compress(raw[: len(raw) // 2])) + end, look="any")
    return {
        "pixels-of-half": half,
        **{name: refused(data) for name, data in bad.items()},
        **{name: legal(data) for name, data in good.items()},
    }
