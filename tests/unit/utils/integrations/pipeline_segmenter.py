"""A segmenter with the orchestrator's own work in this process, and stand-ins for the encoder
and the decoder.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from orchestrator import everything, segment
from orchestrator.cache import MOBILE_SAM_SHAPES, Embedding, EmbeddingCache, Layout
from orchestrator.call import Call, ModelRequest, Part
from orchestrator.embeddings import Embeddings
from orchestrator.images import Frame
from orchestrator.pipeline import Pipeline
from orchestrator.problems import Rejected, UnknownImage
from orchestrator.stages import Stages
from utils.errors import ImageNotCached, RejectedByModel
from utils.inference.request import ImageSource, InferenceRequest
from utils.inference.segmenter import AnswerParts
from utils.inference.triton_segmenter import _problem

RADIUS = 60.0
"""Radius of the disc that the decoder finds around each click, in its pixels, of which a frame
has 256."""
WEIGHTS = {"name": "none", "sha256": "00"}


def encode(frame: Frame) -> Embedding:
    """Return an embedding that shows the frame: the means of its 64 x 64 tiles."""
    tiles = frame.pixels.reshape(64, 16, 64, 16, 3).mean(axis=(1, 3, 4))
    embedding = np.broadcast_to(tiles[None, :, :, None], MOBILE_SAM_SHAPES["image_embeddings"])
    return {"image_embeddings": embedding.astype(np.float16)}


def decode(inputs: dict[str, Any], outputs: list[str]) -> list[Any]:
    """Find a disc around the middle of the points of each prompt, with a hole."""
    y, x = np.mgrid[:256, :256] + 0.5
    count = 4 if outputs[0] == "low_res_masks" else 1
    logits = []
    for coords, labels in zip(inputs["point_coords"], inputs["point_labels"], strict=True):
        across, down = coords[labels >= 0].mean(axis=0) / 4
        distance = np.hypot(x - across, y - down)
        logits.append(np.minimum(RADIUS - distance, distance - RADIUS / 4))
    masks = np.array(logits, np.float32)[:, None].repeat(count, axis=1)
    return [masks, np.full((len(masks), 4), 0.9, np.float32)]


class PipelineSegmenter:
    """A segmenter whose images may have at most `max_pixels` pixels."""

    parallel_batches, batch_points = 1, 16

    def __init__(self, folder: Path, max_pixels: int, cache_bytes: int = 2**30) -> None:
        stages = Stages(lambda *_: None)
        stages.begin(lambda: None, counts=False)
        self.sources: list[str] = []
        """Where the embedding of each answer was found."""
        cache = EmbeddingCache(folder, Layout("f" * 64), cache_bytes, lambda _: None)
        self.pipeline = Pipeline(
            run_decoder=decode,
            embeddings=Embeddings(
                cache, None, encode, max_pixels, self.sources.append, stages=stages
            ),
            stages=stages,
            identity={
                "weights": WEIGHTS,
                "engine": {"encoder": "a", "decoder": "b"},
                "model_version": 1,
            },
            thresholds={"pred_iou_thresh": 0.5, "stability_score_thresh": 0.5},
            max_answer_bytes=10**8,
            decoder_batch=8,
        )

    async def embed(
        self, image: ImageSource, model_version: int | None = None, *, background: bool = False
    ) -> bytes:
        return self._answer(
            segment.segment,
            image,
            InferenceRequest({}, {"encode": not (background and image.file)}),
        )[2]

    async def segment(self, image: ImageSource, request: InferenceRequest) -> AnswerParts:
        mask, picture, result = self._answer(segment.segment, image, request)
        return AnswerParts(mask, picture or None, result)

    async def records(self, image: ImageSource, batch: InferenceRequest) -> dict[str, Any]:
        (document,) = self._answer(everything.records, image, batch)
        found: dict[str, Any] = orjson.loads(document)
        return found

    def _answer(self, work: Any, image: ImageSource, request: InferenceRequest) -> list[bytes]:
        call = Call(
            image_id=image.image_id,
            owner=image.owner,
            region=image.region,
            scale_down=image.scale_down,
            options=request.options,
        )
        tensors: dict[str, Any] = {**request.inputs, "call": [orjson.dumps(call)]}
        if image.file is not None:
            tensors["input_image"] = [image.file]
        try:
            parts: tuple[Part, ...] = work(self.pipeline, ModelRequest(tensors.get))
        except Rejected as rejected:
            raise RejectedByModel(_problem(asdict(rejected), image, request.point_paths)) from None
        except UnknownImage:
            raise ImageNotCached(image.image_id or "") from None
        return [b"".join(part) for part in parts]
