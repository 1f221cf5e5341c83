"""A segmenter without Triton."""

import copy
import json
from typing import Any

import numpy as np
from safetensors.numpy import save

from utils.errors import ImageNotCached
from utils.inference.request import ImageSource, InferenceRequest
from utils.inference.segmenter import AnswerParts

IMAGE = {
    "image_id": "the id",
    "width": 40,
    "height": 30,
    "orientation": 6,
    "weights": {"name": "none"},
    "model_version": 4,
}
"""Answer of `embed`."""
EVERYTHING_ENGINE = {"encoder": "fake", "decoder": "fake bf16"}
SEGMENTATION = {"size": [30, 40], "counts": "c" * 100}


def record(
    box, score: float = 0.9, *, crop=(0, 0, 40, 30), bbox=None, changed: bool = False
) -> dict[str, Any]:
    """Return a record of the model; `bbox` is the box after small regions were removed, if
    different.
    """
    (x0, y0, x1, y1), (left, top, right, bottom) = bbox or box, crop
    return {
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "predicted_iou": score,
        "crop_box": [left, top, right - left, bottom - top],
        "box": list(box),
        "changed": changed,
        "segmentation": SEGMENTATION,
    }


class FakeSegmenter:
    """Segmenter that records its calls, and answers what a test sets."""

    def __init__(
        self, *batches: list[dict[str, Any]] | Exception, image: dict[str, Any] = IMAGE
    ) -> None:
        self.image = image
        self.parallel_batches, self.batch_points = 1, 16
        self.masks: list[dict[str, Any]] = []
        self.embedding = {
            "image_embeddings": np.linspace(0, 1, 64 * 64 * 256, dtype=np.float16).reshape(
                1, 64, 64, 256
            )
        }
        self.next_batches = list(batches)
        """Records of the next batches, or errors; later batches have no records."""
        self.lost: set[str] = set()
        """Ids of images that are no longer cached."""
        self.error: Exception | None = None
        """Error of `embed` and `segment`."""
        self.embeds: list[ImageSource] = []
        self.stored: list[ImageSource] = []
        self.asked_version: int | None = None
        self.jobs: list[tuple[ImageSource, InferenceRequest]] = []
        self.batches: list[tuple[ImageSource, InferenceRequest]] = []

    @property
    def sources(self) -> list[ImageSource]:
        """Images of all calls but those for batches."""
        return [*self.embeds, *self.stored, *(image for image, _ in self.jobs)]

    @property
    def calls(self) -> list[Any]:
        """Arguments of all calls."""
        return [*self.embeds, *self.stored, *self.jobs, *self.batches]

    @property
    def result(self) -> bytes:
        """The result of `segment`."""
        return json.dumps({**self.image, "masks": self.masks}).encode()

    async def embed(
        self, image: ImageSource, model_version: int | None = None, *, background: bool = False
    ) -> bytes:
        (self.stored if background and image.file else self.embeds).append(image)
        self.asked_version = model_version
        self._check(image)
        return json.dumps(self.image).encode()

    async def segment(self, image: ImageSource, request: InferenceRequest) -> AnswerParts:
        self.jobs.append((image, request))
        self._check(image)
        if "embedding" in request.options:
            return AnswerParts(save(self.embedding), None, b'{"etag": "the tag"}')
        picture = None if request.options["segmented_image"] == "none" else b"the picture"
        return AnswerParts(b"the mask", picture, self.result)

    async def records(self, image: ImageSource, batch: InferenceRequest) -> dict[str, Any]:
        self.batches.append((image, batch))
        answer = self.next_batches.pop(0) if self.next_batches else []
        if isinstance(answer, Exception):
            raise answer
        return {"engine": EVERYTHING_ENGINE, "masks": copy.deepcopy(answer)}

    def _check(self, image: ImageSource) -> None:
        if self.error:
            raise self.error
        if image.file is None and image.image_id in self.lost:
            raise ImageNotCached(image.image_id)
