"""Requests to one adapter, with a fake segmenter."""

import asyncio
from typing import Any

import httpx
import numpy as np
import orjson

from orchestrator.masks import area_and_box, rle
from utils.api.errors import ImageNotCached
from utils.api.images import ImageSource
from utils.integrations.adapter import Adapter, Adapters, Service
from utils.settings import Settings
from utils.triton.segmenter import GridBatch, Job, Segmentation

SQUARE = [[2, 2], [12, 2], [12, 12], [2, 12]]
HOLE = [[4, 4], [4, 6], [6, 6], [6, 4]]
MASK = {"object": 0, "score": 0.9, "area": 96, "box": [2, 2, 12, 12], "polygon": [[SQUARE, HOLE]]}
"""A mask of `/mobile_sam` as polygon."""


def record(mask: np.ndarray) -> dict[str, Any]:
    """Return a mask (30, 40) bool as a record of the model."""
    area, (left, top, right, bottom) = area_and_box(mask)
    found = {"area": area, "bbox": [left, top, right - left, bottom - top], "predicted_iou": 0.9}
    box = [left, top, right, bottom]
    return found | {"crop_box": [0, 0, 40, 30], "box": box, "tidied": False, "segmentation": rle(mask)}


class Replay:
    """An adapter whose service answers `masks`, or `records_found` for everything, and records what it is asked."""

    def __init__(self, adapter: Adapter, settings: Settings | None = None) -> None:
        self.masks: list[dict[str, Any]] = []
        self.records_found: list[dict[str, Any]] = []
        self.cached = {"id"}
        self.sources: list[ImageSource] = []
        self.jobs: list[Job] = []
        self.grids: list[GridBatch] = []
        self._adapters = Adapters([adapter], Service(lambda: self, settings or Settings()))
        self._identity = {"image_id": "id", "width": 40, "height": 30, "weights": {"name": "official"}}

    def _take(self, image: ImageSource) -> None:
        self.sources.append(image)
        if image.file is None and image.image_id not in self.cached:
            raise ImageNotCached.of(str(image.image_id))

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        self._take(image)
        return orjson.dumps({**self._identity, "model_version": 1})

    def check_room(self, body: bytes) -> None:
        raise NotImplementedError

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        self._take(image)
        self.jobs.append(job)
        return Segmentation(b"", None, orjson.dumps({**self._identity, "masks": self.masks}))

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        self.grids.append(batch)
        return [dict(record) for record in self.records_found] if len(self.grids) == 1 else []

    def prompts(self) -> tuple[list, list]:
        """Return points and labels of the only job."""
        (job,) = self.jobs
        return job.prompts.points_xy.tolist(), job.prompts.labels.tolist()

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to the adapter."""
        return ask_app(self._adapters, method, path, **options)


def ask_app(app: Any, method: str, path: str, **options: Any) -> httpx.Response:
    """Send a request to an ASGI application."""

    async def call() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return await client.request(method, path, **options)

    return asyncio.run(call())
