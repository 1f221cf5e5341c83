"""JPEG files of the corpus."""

from __future__ import annotations

import io
import re
import struct

from PIL import Image

from tests.fuzz.odd_images import OddImage, exif, legal, refused, scene, stored, tiff
from tests.fuzz.odd_pngs import FAR_AWAY, ORIENTATION_AS_TEXT, POINTER_TO_ITSELF, XMP

START, END, SCAN, FRAME, TABLES, QUANTA = b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0", b"\xff\xc4", b"\xff\xdb"
APP1, APP2, APP13, COMMENT = b"\xff\xe1", b"\xff\xe2", b"\xff\xed", b"\xff\xfe"
ONE_COMPONENT = b"\xff\xda\0\x08\1\1\0\0\x3f\0"
"""Header of a scan with only the luminance."""


def jpegs() -> dict[str, OddImage]:
    """Return all files by name."""
    return {f"jpeg/{name}.jpg": odd for part in (_kinds(), _metadata(), _broken()) for name, odd in part.items()}


def jpeg(image: Image.Image | None = None, **options) -> bytes:
    """Encode the scene, or another picture, with Pillow."""
    file = io.BytesIO()
    (image or Image.fromarray(scene())).save(file, "JPEG", **{"quality": 90, **options})
    return file.getvalue()


def segment(marker: bytes, data: bytes, length: int | None = None) -> bytes:
    """Return a segment, optionally with a wrong `length`."""
    return marker + struct.pack(">H", len(data) + 2 if length is None else length) + data


def with_segments(*segments: bytes, whole: bytes = b"") -> bytes:
    """Insert segments before a file's own."""
    whole = whole or jpeg()
    return START + b"".join(segments) + whole[2:]


def without(marker: bytes, whole: bytes) -> bytes:
    """Remove all segments of a kind."""
    while (place := whole.find(marker)) > 0:
        whole = whole[:place] + whole[place + 2 + int.from_bytes(whole[place + 2 : place + 4], "big") :]
    return whole


def edited(whole: bytes, marker: bytes, offset: int, value: bytes) -> bytes:
    """Replace bytes of the first segment of a kind, at an offset from the end of the marker."""
    place = whole.index(marker) + 2 + offset
    return whole[:place] + value + whole[place + len(value) :]


def scans_again(whole: bytes, count: int) -> bytes:
    """Repeat the last scan of a progressive file."""
    last = [found.start() for found in re.finditer(SCAN, whole)][-1]
    return whole[:-2] + whole[last:-2] * count + END


def _kinds() -> dict[str, OddImage]:
    """Return every kind of JPEG that Pillow writes."""
    picture = Image.fromarray(scene())
    several = io.BytesIO()
    picture.save(several, "MPO", save_all=True, append_images=[picture.convert("L")], quality=90)
    files = {
        "444": jpeg(subsampling=0),
        "422": jpeg(subsampling=1),
        "420": jpeg(subsampling=2),
        "rgb": jpeg(keep_rgb=True),
        "progressive": jpeg(progressive=True),
        "restart-markers": jpeg(restart_marker_blocks=1),
        "own-tables": jpeg(optimize=True),
        "cmyk": jpeg(picture.convert("CMYK")),
        "several-pictures": several.getvalue(),
    }
    tall, wide = Image.new("RGB", (1, 3000)), Image.new("RGB", (3000, 1))
    return {
        **{name: legal(data) for name, data in files.items()},
        "grey": legal(jpeg(picture.convert("L")), look="grey"),
        "grey-progressive": legal(jpeg(picture.convert("L"), progressive=True), look="grey"),
        "1x1": legal(jpeg(Image.new("RGB", (1, 1))), (1, 1), "any"),
        "1x3000": legal(jpeg(tall), (3000, 1), "any"),
        "3000x1": legal(jpeg(wide), (1, 3000), "any"),
        "1x3000-on-its-side": legal(jpeg(tall, exif=b"Exif\0\0" + exif(6)), (1, 3000), "any"),
    }


def _metadata() -> dict[str, OddImage]:
    """Return files with valid and broken metadata."""

    def of_exif(*entries: bytes, **options: int) -> bytes:
        return segment(APP1, b"Exif\0\0" + tiff(*entries, **options))

    turned = jpeg(stored(6))
    plain = {
        "exif-empty": [segment(APP1, b"Exif\0\0")],
        "exif-of-zeros": [segment(APP1, b"Exif\0\0" + bytes(40))],
        "exif-of-another-order": [segment(APP1, b"Exif\0\0XX" + tiff()[2:])],
        "exif-beyond-its-end": [of_exif(FAR_AWAY)],
        "exif-that-points-to-itself": [of_exif(POINTER_TO_ITSELF, following=8)],
        "exif-of-too-few-entries": [of_exif(count=65_535)],
        "exif-orientation-as-text": [of_exif(ORIENTATION_AS_TEXT)],
        "exif-orientation-9": [segment(APP1, b"Exif\0\0" + exif(9))],
        "exif-in-many-pieces": [segment(APP1, b"Exif\0\0x")] * 300,
        "profile-incomplete": [segment(APP2, b"ICC_PROFILE\0\x01\x03" + bytes(60))],
        "pictures-that-are-not-there": [segment(APP2, b"MPF\0" + tiff(FAR_AWAY))],
        "photoshop-cut-off": [segment(APP13, b"Photoshop 3.0\0008BIM\x03\xed\0\0\0\0\xff\xff")],
        "comment-of-6000": [segment(COMMENT, b"x" * 6_000)],
        "fill-bytes": [b"\xff" * 40],
    }
    files = {name: legal(with_segments(*before)) for name, before in plain.items()}
    for orientation in range(1, 9):
        data = jpeg(stored(orientation), exif=b"Exif\0\0" + exif(orientation))
        files[f"exif-orientation-{orientation}"] = legal(data)
    twice = [segment(APP1, b"Exif\0\0" + exif(6)), segment(APP1, b"Exif\0\0" + exif(3))]
    files["exif-twice"] = legal(with_segments(*twice, whole=turned))
    xmp = segment(APP1, b"http://ns.adobe.com/xap/1.0/\0" + XMP)
    files["xmp-orientation-6"] = legal(with_segments(xmp, whole=turned))
    bad = {
        "a-thousand-comments": [segment(COMMENT, b"")] * 1100,
        "profile-cut-off": [segment(APP2, b"ICC_PROFILE\0")],
        "jfif-cut-off": [segment(b"\xff\xe0", b"JFIF")],
        "adobe-cut-off": [segment(b"\xff\xee", b"Adobe")],
    }
    return files | {name: refused(with_segments(*before)) for name, before in bad.items()}


def _broken() -> dict[str, OddImage]:
    """Return files with broken structure or pixels."""
    whole, progressive = jpeg(), jpeg(progressive=True)
    first_scan = progressive.index(SCAN)
    bad = {
        "start-alone": START,
        "start-and-a-marker": START + b"\xff\xe0",
        "start-and-end": START + END,
        "frame-missing": without(FRAME, whole),
        "frame-cut-off": whole[: whole.index(FRAME) + 6],
        "frame-12-bits": edited(whole, FRAME, 2, b"\x0c"),
        "frame-2-components": edited(whole, FRAME, 7, b"\x02"),
        "frame-lossless": whole.replace(FRAME, b"\xff\xc3"),
        "frame-0x24": edited(whole, FRAME, 5, b"\0\0"),
        "frame-32x0": edited(whole, FRAME, 3, b"\0\0"),
        "frame-twice": with_segments(whole[whole.index(FRAME) :][:19], whole=whole),
        "sampling-0": edited(whole, FRAME, 9, b"\0"),
        "sampling-15": edited(whole, FRAME, 9, b"\xff"),
        "quanta-missing": without(QUANTA, whole),
        "tables-that-are-none": edited(whole, TABLES, 3, b"\xff" * 16),
        "scan-missing": whole[: whole.index(SCAN)] + END,
        "scan-of-nothing": whole[: whole.index(SCAN) + 14],
        "scan-of-another-component": edited(whole, SCAN, 3, b"\x09"),
        "pixels-cut-off": whole[: (whole.index(SCAN) + len(whole)) // 2],
        "progressive-cut-off": progressive[: first_scan + 40],
        "end-missing": whole[:-2],
        "segment-beyond-the-end": with_segments(segment(COMMENT, b"", length=65_535)),
        "two-hundred-scans": scans_again(progressive, 200),
        "two-hundred-empty-scans": whole[: whole.index(SCAN)] + ONE_COMPONENT * 200 + END,
    }
    bombs = {
        "bomb-65500x65500": edited(whole, FRAME, 3, b"\xff\xdc\xff\xdc"),
        "bomb-6000x6000": edited(whole, FRAME, 3, b"\x17\x70\x17\x70"),
    }
    good = {
        "trailing-garbage": whole + b"\xde\xad\xbe\xef" * 50,
        "trailing-scans": whole + SCAN * 500,
        "junk-between-segments": with_segments(segment(COMMENT, b"") + b"junk"),
        "segment-of-length-0": with_segments(segment(COMMENT, b"", length=0)),
        "frame-arithmetic": whole.replace(FRAME, b"\xff\xc9"),
        "page-in-a-comment": with_segments(segment(COMMENT, b"*/=1;alert(1)/*<?php system('id'); ?>")),
        "progressive-with-a-scan-twice": scans_again(progressive, 3),
        "progressive-without-its-end": progressive[: [m.start() for m in re.finditer(SCAN, progressive)][4]] + END,
        "tables-missing": without(TABLES, whole),
    }
    return {
        **{name: refused(data) for name, data in bad.items()},
        **{name: refused(data, 413) for name, data in bombs.items()},
        **{name: legal(data, look="any") for name, data in good.items()},
    }
