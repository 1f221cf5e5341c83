"""Warm-up of everything but the networks, so that the first request does not pay for lazy imports and first
allocations. Triton warms up the networks itself (`model_warmup` in their config.pbtxt)."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from orchestrator import images
from orchestrator.masks import MaskPart, area_and_box, upsample
from orchestrator.pictures import Picture

SIZE_HW = (1200, 1800)
"""A typical photograph: 2 megapixels."""


def warm_up() -> None:
    """Decode and scale an image, and make a mask and a picture of it."""
    height, width = SIZE_HW
    ramp = np.linspace(0, 255, width, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.broadcast_to(ramp[None, :, None], (height, width, 3))).save(file, "JPEG")
    pixels = images.decode(images.open_image(file.getvalue(), height * width))
    frame = images.to_frame(pixels)
    logits = np.full((256, 256), -1, np.float32)
    logits[60:120, 80:180] = 1
    mask = upsample(logits, frame.size_hw, SIZE_HW) > 0
    area_and_box(mask)
    picture = Picture(pixels, "overlay")
    picture.add(mask)
    picture.encode()
    for mask_format in ("png", "rle"):
        part = MaskPart(mask_format, SIZE_HW, None)
        part.add(mask)
        part.encode()
