"""WebP files of the corpus, and files that are no supported image."""

from __future__ import annotations

import gzip
import io
import struct

from PIL import Image

from tests.fuzz.odd_images import OddImage, exif, legal, refused, scene, stored
from tests.fuzz.odd_jpegs import jpeg
from tests.fuzz.odd_pngs import XMP
from tests.fuzz.png_files import png


def others() -> dict[str, OddImage]:
    """Return all files by name."""
    named = {f"webp/{name}.webp": odd for part in (_webps(), _broken_webps()) for name, odd in part.items()}
    return named | {f"other/{name}": odd for name, odd in _no_images().items()}


def encoded(file_format: str, image: Image.Image | None = None, **options) -> bytes:
    """Encode the scene, or another picture, with Pillow."""
    file = io.BytesIO()
    (image or Image.fromarray(scene())).save(file, file_format, **options)
    return file.getvalue()


def riff(*chunks: bytes, length: int | None = None) -> bytes:
    """Return a WebP file of these chunks, optionally with a wrong `length`."""
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body) if length is None else length) + body


def part(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a WebP file."""
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def canvas(width: int, height: int, flags: int = 0) -> bytes:
    """Return the chunk VP8X."""
    return part(
        b"VP8X", bytes([flags, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )


def _webps() -> dict[str, OddImage]:
    picture = Image.fromarray(scene())
    white = [Image.new("RGB", picture.size, "white")]
    files = {
        "lossy": encoded("WEBP", quality=90),
        "lossless": encoded("WEBP", lossless=True),
        "alpha": encoded("WEBP", _nearly_transparent(), lossless=True, exact=True),
        "animation": encoded("WEBP", save_all=True, append_images=white, lossless=True),
        "profile-that-is-none": encoded("WEBP", icc_profile=b"no profile", lossless=True),
        "exif-of-zeros": encoded("WEBP", exif=bytes(40), lossless=True),
        "trailing-garbage": encoded("WEBP", lossless=True) + b"\xde\xad\xbe\xef" * 50,
        "xmp-orientation-6": encoded("WEBP", stored(6), xmp=XMP, lossless=True),
    }
    for orientation in range(1, 9):
        data = encoded("WEBP", stored(orientation), exif=exif(orientation), lossless=True)
        files[f"exif-orientation-{orientation}"] = data
    still = encoded("WEBP", lossless=True)[12:]
    files["exif-unannounced"] = riff(canvas(32, 24), still, part(b"EXIF", exif(6)))
    files["a-chunk-nobody-knows"] = riff(canvas(32, 24), part(b"haPy", b"to be here"), still)
    sizes = {
        f"{width}x{height}": legal(encoded("WEBP", Image.new("RGB", (width, height))), (height, width), "any")
        for width, height in ((1, 1), (1, 3000), (3000, 1))
    }
    return {name: legal(data) for name, data in files.items()} | sizes


def _nearly_transparent() -> Image.Image:
    picture = Image.fromarray(scene())
    picture.putalpha(3)
    return picture


def _broken_webps() -> dict[str, OddImage]:
    still = encoded("WEBP", lossless=True)[12:]
    lossy = encoded("WEBP")
    place_and_size = bytes(6) + (31).to_bytes(3, "little") + (23).to_bytes(3, "little")
    frame = part(b"ANMF", place_and_size + bytes(4) + still)
    bad = {
        "header-alone": riff(),
        "chunk-of-nothing": riff(part(b"VP8 ", b"")),
        "chunk-cut-off": riff(b"VP8L\xff\xff\xff\x7f"),
        "lossy-cut-off": lossy[: len(lossy) // 2],
        "lossless-cut-off": riff(still)[:-20],
        "pixels-of-zeros": riff(part(b"VP8L", still[8:13] + bytes(60))),
        "canvas-alone": riff(canvas(32, 24)),
        "canvas-of-another-size": riff(canvas(64, 48), still),
        "animation-of-nothing": riff(canvas(32, 24, flags=2), part(b"ANIM", bytes(6))),
        "length-0": riff(still, length=0),
        "length-of-4-gigabytes": riff(still, length=2**32 - 2),
        "bomb-canvas-of-nothing": riff(canvas(20_000, 20_000, flags=2), part(b"ANIM", bytes(6))),
        "lossless-version-7": riff(part(b"VP8L", still[8:12] + b"\xff" + still[13:])),
    }
    bombs = {
        "bomb-16383x16383": riff(part(b"VP8L", b"\x2f\xfe\xbf\xff\x0f" + bytes(60))),
        "bomb-canvas": riff(canvas(16_000, 16_000, flags=2), part(b"ANIM", bytes(6)), frame),
    }
    return {
        **{name: refused(data) for name, data in bad.items()},
        **{name: refused(data, 413) for name, data in bombs.items()},
    }


def _no_images() -> dict[str, OddImage]:
    """Return files in other formats (415), and files that are no images (422)."""
    picture = Image.fromarray(scene())
    white = [Image.new("RGB", picture.size, "white")]
    scene_png = png(scene().astype("uint16"))
    formats = {
        "still.gif": encoded("GIF"),
        "animated.gif": encoded("GIF", picture.convert("P"), save_all=True, append_images=white),
        "picture.bmp": encoded("BMP"),
        "picture.tiff": encoded("TIFF"),
        "picture.heic": b"\0\0\0\x18ftypheic" + bytes(60),
        "picture.avif": b"\0\0\0\x18ftypavif" + bytes(60),
        "picture.jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(60),
        "picture.jxl": b"\xff\x0a" + bytes(60),
        "gif-with-a-jpeg.gif": b"GIF89a" + bytes(20) + jpeg(),
    }
    nothing = {
        "empty": b"",
        "one-byte": b"\x89",
        "zeros": bytes(500),
        "text.txt": b"this is no image",
        "picture.svg": b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>',
        "entities.xml": b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>',
        "page.pdf": b"%PDF-1.7\n1 0 obj\n<<>>\nendobj\n%%EOF",
        "picture.ps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "picture.ppm": encoded("PPM"),
        "picture.ico": encoded("ICO"),
        "picture.tga": encoded("TGA"),
        "archive.zip": b"PK\x05\x06" + bytes(18),
        "picture.png.gz": gzip.compress(scene_png, mtime=0),
        "line-break-before.png": b"\n" + scene_png,
        "text-mode.png": scene_png.replace(b"\r\n", b"\n"),
        "no-riff.webp": b"RIFX" + encoded("WEBP")[4:],
        "sound.wav": b"RIFF\x24\0\0\0WAVEfmt " + bytes(30),
    }
    return {
        **{name: refused(data, 415) for name, data in formats.items()},
        **{name: refused(data) for name, data in nothing.items()},
    }
