"""Image of the measurements: one of the page's samples at 2 megapixels, with clicks on its
objects.
"""

import io
import itertools
import time
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

SAMPLE = Path(__file__).resolve().parents[1] / "page" / "samples" / "balloons.jpg"
SIZE = (1800, 1200)
"""Width and height, 2 megapixels."""
POINTS = (
    (1270, 436),  # the largest balloon
    (710, 400),
    (450, 560),
    (880, 640),
    (1600, 400),
    (540, 460),  # the smallest balloon
    (500, 860),  # a sail
    (560, 1040),
    (1460, 900),
    (1190, 1110),  # the buoy
)
"""Clicks on ten objects, x then y."""
CLICK = POINTS[0]
NOISE_CLICK = (500, 500)
# Not those of earlier runs, whose images a cache may hold.
_numbers = itertools.count(time.time_ns())


@cache
def photo() -> bytes:
    """Return the image as a JPEG file."""
    file = io.BytesIO()
    Image.open(SAMPLE).resize(SIZE, Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


@cache
def noise() -> bytes:
    """Return noise of 1 megapixel as a PNG file of 3 MB."""
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(256, size=(1000, 1000, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def new(file: bytes) -> bytes:
    """Return an image as a file that no server has seen: it has a number after the image's end."""
    return file + next(_numbers).to_bytes(8, "big")


def new_photo() -> bytes:
    """Return the image as a file that no server has seen."""
    return new(photo())
