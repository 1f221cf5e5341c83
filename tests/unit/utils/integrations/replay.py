"""Requests to one adapter, with a fake segmenter."""

from typing import Any

import numpy as np

from orchestrator.masks import area_and_box, rle
from tests import fake_segmenter
from tests.fake_segmenter import IMAGE, FakeSegmenter
from tests.http.asgi import Http
from utils.inference.request import ImageSource
from utils.integrations.adapter import Adapter, Adapters
from utils.integrations.service import MaskService
from utils.settings import Settings

SQUARE = [[2, 2], [12, 2], [12, 12], [2, 12]]
HOLE = [[4, 4], [4, 6], [6, 6], [6, 4]]
MASK = {"object": 0, "score": 0.9, "area": 96, "box": [2, 2, 12, 12], "polygon": [[SQUARE, HOLE]]}
"""A mask of `/mobile_sam` as polygon."""


def record(mask: np.ndarray) -> dict[str, Any]:
    """Return a mask (30, 40) bool as a record of the model."""
    area, box = area_and_box(mask)
    return fake_segmenter.record(box) | {"area": area, "segmentation": rle(mask)}


class Replay(Http, FakeSegmenter):
    """An adapter with a fake segmenter, and requests to it."""

    def __init__(self, adapter: Adapter, settings: Settings | None = None) -> None:
        service = MaskService(self, settings or Settings(), background=self)  # type: ignore[arg-type]
        Http.__init__(self, Adapters([adapter], service))
        self.queued: list[ImageSource] = []
        FakeSegmenter.__init__(
            self, image={**IMAGE, "image_id": "id", "weights": {"name": "official"}}
        )

    async def add(self, images: list[ImageSource]) -> dict[str, Any]:
        """Queue images."""
        self.queued += images
        return {"images": [{"image_id": self.image["image_id"], "state": "queued"} for _ in images]}

    def prompts(self) -> tuple[list, list]:
        """Return points and labels of the only request."""
        ((_, request),) = self.jobs
        return request.inputs["point_coords"].tolist(), request.inputs["point_labels"].tolist()
