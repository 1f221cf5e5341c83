"""A picture to measure with: one of the page's samples at the size of a phone's screen, and a click on it."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

from PIL import Image

SAMPLE = Path(__file__).resolve().parents[1] / "utils" / "page" / "static" / "samples" / "balloons.jpg"
SIZE = (1800, 1200)
"""Width and height, 2 megapixels."""
CLICK = (1270, 436)
"""x and y of a point on the largest balloon."""


@cache
def photo() -> bytes:
    """Return a JPEG of 2 megapixels."""
    file = io.BytesIO()
    Image.open(SAMPLE).resize(SIZE, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def unseen(file: bytes, number: int) -> bytes:
    """Return the same pixels as a file that the service has not seen: other bytes behind the JPEG's end."""
    return file + number.to_bytes(8, "big")
