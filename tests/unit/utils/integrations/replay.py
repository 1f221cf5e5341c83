"""Requests to one adapter, with a fake segmenter."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import orjson

from utils.api.images import ImageSource
from utils.integrations.adapter import Adapter, Adapters, Service
from utils.settings import Settings
from utils.triton.segmenter import GridBatch, Job, Segmentation


class Replay:
    """An adapter whose service answers `masks`, or `records` for everything, and records what it is asked."""

    def __init__(self, adapter: Adapter) -> None:
        self.masks: list[dict[str, Any]] = []
        self.records_found: list[dict[str, Any]] = []
        self.jobs: list[Job] = []
        self.grids: list[GridBatch] = []
        self.files: list[bytes | None] = []
        self._adapters = Adapters([adapter], Service(lambda: self, Settings()))
        self._identity = {"image_id": "id", "width": 40, "height": 30, "weights": {"name": "official"}}

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        return orjson.dumps({**self._identity, "model_version": 1})

    def check_room(self, body: bytes) -> None:
        raise NotImplementedError

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        self.files.append(image.file)
        self.jobs.append(job)
        return Segmentation(b"", None, orjson.dumps({**self._identity, "masks": self.masks}))

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        self.grids.append(batch)
        return [dict(record) for record in self.records_found] if len(self.grids) == 1 else []

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request to the adapter."""

        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self._adapters)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())
