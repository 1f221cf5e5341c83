"""A pipeline with stand-ins for the encoder and the decoder, and calls for it."""

import io
import json
from typing import Any

import numpy as np
from PIL import Image

from orchestrator.cache import MOBILE_SAM_SHAPES, Embedding
from orchestrator.call import ModelRequest
from orchestrator.images import Frame
from orchestrator.pipeline import Pipeline

WIDTH, HEIGHT = 64, 48
REGION = [8, 4, 40, 36]


def decoder(inputs: dict[str, Any], outputs: list[str]) -> list[Any]:
    """Find the image's top left quarter for each prompt, with scores that rise from candidate to
    candidate.
    """
    count, masks = len(inputs["point_labels"]), 4 if outputs[0] == "low_res_masks" else 1
    logits = np.full((count, masks, 256, 256), -10, np.float32)
    logits[:, :, :96, :128] = 10  # the frame is 1024 x 768
    return [logits, np.tile(np.array([0.6, 0.7, 0.8, 0.9], np.float32), (count, 1))]


EMBEDDING = {name: np.zeros(shape, np.float16) for name, shape in MOBILE_SAM_SHAPES.items()}


def png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), "white").save(file, "PNG")
    return file.getvalue()


def model_request(
    objects: int = 1, *, costly: bool = True, points: Any = None, region: Any = None, **options: Any
) -> ModelRequest:
    """Return a request with a click for each object, or with `points` in place of their
    coordinates.
    """
    described = {"accepts_costly": costly, "region": region, "options": options}
    tensors: dict[str, Any] = {"input_image": [png()], "call": [json.dumps(described).encode()]}
    if objects:
        tensors["point_coords"] = np.full((objects, 1, 2), 5, np.float32)
        tensors["point_labels"] = np.ones((objects, 1), np.int32)
    if points is not None:
        tensors["point_coords"] = np.array(points, np.float32)
    return ModelRequest(tensors.get)


def sizes_encoded(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Return a list to which the size of each image in the encoder's frame is added."""
    sizes: list[tuple[int, int]] = []

    def encode(frame: Frame) -> Embedding:
        sizes.append(frame.size_hw)
        return EMBEDDING

    pipeline.embeddings.encoder = encode
    return sizes
