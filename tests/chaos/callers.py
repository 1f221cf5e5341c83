"""Clicks on known and new images."""

import base64
import io
import random
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

from harness.load import Request, json_request

NONE: Mapping[str, str] = {}


def photo(seed: int) -> bytes:
    """Return a JPEG file of 640 x 480 pixels that depends on the seed."""
    small = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(
        file, "JPEG", quality=85
    )
    return file.getvalue()


def click(image: bytes, headers: Mapping[str, str] = NONE) -> Request:
    """Return a click on an image."""
    fields = {
        "input_image": base64.b64encode(image).decode(),
        "pos_coords": [[300, 200]],
        "mask_format": "rle",
        "segmented_image": "none",
    }
    return json_request(fields, headers=headers)


def mixed(
    images: int = 20,
    new: float = 0.2,
    seed: int = 0,
    prepared: int = 100,
    headers: Mapping[str, str] = NONE,
) -> Callable[[], Request]:
    """Return a source of clicks on a few known images and on new ones.

    Args:
        images: number of known images.
        new: share of requests with a new image.
        seed: seed of the new images, which differ between seeds.
        prepared: number of new images to create in advance; further ones are created on demand.
        headers: further headers of all requests.
    """
    known = [click(photo(number), headers) for number in range(images)]
    draw, number = random.Random(seed), 1_000_000 * (seed + 1)
    fresh = [click(photo(number + further), headers) for further in range(prepared)]

    def source() -> Request:
        nonlocal number
        if draw.random() >= new:
            return draw.choice(known)
        if fresh:
            return fresh.pop()
        number += 1
        return click(photo(number + prepared), headers)

    return source
