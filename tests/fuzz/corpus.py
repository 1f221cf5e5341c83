"""Files in `corpus/` and what becomes of each: every one stands for a kind of damage, and is named
for it.

The images show one scene, if they show one: 24 x 32 pixels in four quarters, red, green, blue and
yellow, which reveals a wrong size, a wrong orientation and swapped channels. The bodies are
requests to `/mobile_sam`.
"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import requests

CORPUS = Path(__file__).parent / "corpus"
SIZE_HW = (24, 32)
COLOURS = ((200, 30, 30), (30, 180, 40), (40, 60, 200), (220, 210, 40))
"""Colours of the scene's quarters: top left, top right, bottom left, bottom right."""

Outcome = Literal["scene", "on its side", "picture", 413, 415, 422]
"""The scene, upright or on its left side; a picture of its size, whose pixels are not checked; or
the refusal's status.
"""
IMAGES: dict[str, Outcome] = {
    "png/0x10.png": 422,
    "png/4000x4000-without-pixels.png": 422,
    "png/animation.png": "scene",  # the first of two frames
    "png/bomb-30000x30000.png": 413,
    "png/bomb-4294967295x1.png": 413,
    "png/depth-3.png": 422,
    "png/end-before-the-pixels.png": 422,
    "png/exif-behind-the-pixels.png": "on its side",  # EXIF counts ahead of the pixels only
    "png/exif-entries-that-overlap.png": "scene",  # 300 entries, each of nearly the whole
    "png/exif-that-points-to-itself.png": "scene",
    "png/header-after-the-pixels.png": "scene",  # a second header, of 9000 x 9000 pixels
    "png/header-crc-wrong.png": 422,
    "png/metadata-of-4-gigabytes.png": 422,  # as its length says
    "png/palette-of-too-few.png": "picture",
    "png/pixels-filter-9.png": 422,
    "png/pixels-length-of-4-gigabytes.png": "scene",
    "png/pixels-no-zlib.png": 422,
    "png/pixels-of-half.png": "picture",  # Pillow leaves the rest black
    "png/profiles-one-after-the-other.png": "scene",  # four, of a megabyte each
    "png/rgb-16.png": "scene",
    "png/text-no-utf-8.png": "scene",
    "png/trailing-archive.png": "scene",
    "png/xmp-orientation-6.png": "on its side",  # XMP turns no image
    "jpeg/bomb-65500x65500.jpg": 413,
    "jpeg/exif-beyond-its-end.jpg": "scene",
    "jpeg/exif-twice.jpg": "scene",  # the first counts
    "jpeg/frame-0x24.jpg": 422,
    "jpeg/frame-12-bits.jpg": 422,
    "jpeg/frame-arithmetic.jpg": "picture",
    "jpeg/frame-twice.jpg": 422,
    "jpeg/pictures-that-are-not-there.jpg": "scene",
    "jpeg/profile-cut-off.jpg": 422,
    "jpeg/progressive-without-its-end.jpg": "picture",
    "jpeg/quanta-missing.jpg": 422,
    "jpeg/sampling-15.jpg": 422,
    "jpeg/scan-of-another-component.jpg": 422,
    "jpeg/segment-beyond-the-end.jpg": 422,
    "jpeg/segment-of-length-0.jpg": "picture",
    "jpeg/tables-missing.jpg": "picture",
    "webp/alpha.webp": "scene",  # nearly transparent
    "webp/animation.webp": "scene",
    "webp/bomb-16383x16383.webp": 413,
    "webp/bomb-canvas.webp": 413,  # of one small frame
    "webp/bomb-canvas-of-nothing.webp": 422,
    "webp/canvas-of-another-size.webp": 422,
    "webp/exif-orientation-6.webp": "on its side",  # nothing turns a WebP image
    "webp/exif-unannounced.webp": "scene",  # not turned
    "webp/length-of-4-gigabytes.webp": 422,
    "other/entities.xml": 422,
    "other/gif-with-a-jpeg.gif": 415,
    "other/picture.jxl": 415,
    "other/text-mode.png": 422,  # its line breaks are Unix's
}


class Answered(NamedTuple):
    """Status of the answer, and the field of its first error."""

    status: int
    field: str | None = None


BODIES: dict[str, Answered] = {
    "bodies/key-that-turns-around.json": Answered(422, "\\u202eabc"),
    "bodies/key-twice.json": Answered(422, "input_image"),  # the last counts
    "bodies/mask-pickle.json": Answered(422, "mask_input"),
    "bodies/no-json-two-documents.json": Answered(400, "body"),
    "bodies/no-json-utf-16.json": Answered(400, "body"),
    "bodies/no-json-utf-8-surrogates.json": Answered(400, "body"),
    "bodies/right-coordinates-tiny.json": Answered(200),
    "bodies/right-escapes-everywhere.json": Answered(200),
}


def surprises(url: str) -> Iterator[str]:
    """Send all images and bodies to a running service; yield what is not answered as the tables
    say.
    """
    for name in expected_statuses():
        yield from surprise(url, name)


def expected_statuses() -> dict[str, int]:
    """Return the status of each image's and each body's answer by its name."""
    statuses = {
        name: outcome if isinstance(outcome, int) else 200 for name, outcome in IMAGES.items()
    }
    return statuses | {name: answered.status for name, answered in BODIES.items()}


def surprise(url: str, name: str) -> Iterator[str]:
    """Send an image or a body to a running service; yield its name and answer if the tables say
    otherwise.
    """
    status = expected_statuses()[name]
    body = (CORPUS / name).read_bytes()
    if name in IMAGES:
        body = json.dumps(
            {"input_image": base64.b64encode(body).decode(), "pos_coords": [[0, 0]]}
        ).encode()
    headers = {"Content-Type": "application/json"}
    answer = requests.post(f"{url}/mobile_sam", data=body, headers=headers, timeout=60)
    is_problem = answer.headers["Content-Type"] == "application/problem+json"
    if answer.status_code != status or is_problem != (status >= 400):
        yield f"{name}: {answer.status_code} {answer.text[:200]}"
