"""A picture to measure with."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

SIZE = (1800, 1200)
"""Width and height, 2 megapixels."""


def photo() -> bytes:
    """A JPEG of 2 megapixels with the texture and the size of a photograph's."""
    generator = np.random.default_rng(0)
    picture = np.zeros((SIZE[1], SIZE[0], 3), np.float32)
    for cells in (4, 16, 64, 256):
        coarse = generator.normal(0, 1, (cells * 2 // 3 + 1, cells, 3)).astype(np.float32)
        layers = [Image.fromarray(coarse[..., c]).resize(SIZE, Image.Resampling.BICUBIC) for c in range(3)]
        picture += np.stack([np.asarray(layer) for layer in layers], axis=-1) * 60 / cells**0.5
    file = io.BytesIO()
    Image.fromarray((picture + 128).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def unseen(file: bytes, number: int) -> bytes:
    """The same pixels as a file that the service has not seen: other bytes behind the JPEG's end."""
    return file + number.to_bytes(8, "big")
