"""Test images, and pixels of polygons."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pycocotools import mask as coco


def scene(seed: int, size: tuple[int, int] = (480, 320)) -> bytes:
    """Return a PNG file of three discs on noise; it differs by seed, and `size` is width and
    height in pixels.
    """
    rng = np.random.default_rng(seed)
    picture = Image.fromarray(rng.integers(90, 150, (size[1], size[0], 3), dtype=np.uint8))
    draw = ImageDraw.Draw(picture)
    for colour in ((220, 60, 50), (60, 190, 80), (70, 90, 220)):
        radius = int(rng.integers(min(size) // 8, min(size) // 4))
        x, y = (
            int(rng.integers(radius, size[0] - radius)),
            int(rng.integers(radius, size[1] - radius)),
        )
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=colour)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def as_base64(file: bytes) -> str:
    """Return a file as base64 text."""
    return base64.b64encode(file).decode()


def filled(rings: Sequence[Sequence[Sequence[float]]], size_hw: Sequence[int]) -> NDArray[np.bool_]:
    """Return the pixels that are inside an odd number of rings."""
    parts = [
        coco.decode(coco.frPyObjects([np.ravel(ring).tolist()], *size_hw))[..., 0] for ring in rings
    ]
    mask: NDArray[np.bool_] = np.bitwise_xor.reduce(parts).astype(bool)
    return mask
