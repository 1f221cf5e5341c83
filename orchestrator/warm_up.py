"""Warm-up of everything but the networks, so that the first request does not pay for lazy imports and first
allocations. Triton warms up the networks itself (`model_warmup` in their config.pbtxt)."""

import io

import numpy as np
from PIL import Image

from orchestrator import images
from orchestrator.cache import EMBEDDING_SHAPE, Entry
from orchestrator.call import Stages
from orchestrator.costs import Workload
from orchestrator.embeddings import EncodedImage
from orchestrator.segment import draw

SIZE_HW = (1200, 1800)
"""A typical photograph: 2 megapixels."""


def warm_up() -> None:
    """Decode and scale an image, and make masks and pictures of it."""
    height, width = SIZE_HW
    ramp = np.linspace(0, 255, width, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.broadcast_to(ramp[None, :, None], (height, width, 3))).save(file, "JPEG")
    entry = Entry(np.zeros(EMBEDDING_SHAPE, np.float16), SIZE_HW, file.getvalue())
    image = EncodedImage("", "", entry, height * width, Stages(lambda *_: None))
    images.to_frame(image.decode().pixels)
    logits = np.full((1, 256, 256), -1, np.float32)
    logits[:, 60:120, 80:180] = 1
    for mask_format in ("json", "png", "rle"):
        draw(image, Workload(1, 1, mask_format, "overlay"), [(logits, np.ones(1, np.float32))], 2**30)
