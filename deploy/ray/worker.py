"""Ray actors: segment the images of a part and write its file, or hash files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from deploy.ray.asking import Row, Segmenter
from deploy.ray.files import Store
from deploy.ray.results import Results, sha256_of
from deploy.ray.todo import BatchError, Image
from mobile_sam_client import AsyncClient

MAX_RETRIES = 20
"""Retries while the service is busy or unreachable: about five minutes, and as long again to find out whether the
service or the image is at fault. A service can restart in that time."""


@dataclass(frozen=True)
class Service:
    """Facts about the service that workers need."""

    url: str
    weights: str
    """SHA-256 of the weights."""
    max_objects: int
    """Maximum number of prompts per request."""


class Worker:
    """Processes parts one after the other, with up to `in_flight` concurrent requests."""

    def __init__(self, images: Store, results: Results, service: Service, in_flight: int) -> None:
        self._images, self._results, self._service, self._in_flight = images, results, service, in_flight

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """Process a part, unless a worker that died afterwards has already written it.

        Args:
            task: `part`, its name, and `images`.

        Returns:
            `images`: number of images; `error`: reason to stop the batch, or None. A raised error would arrive wrapped
            in Ray's traceback.
        """
        images = [Image(**image) for image in task["images"]]
        try:
            if not self._results.has_part(task["part"]):
                self._results.write(task["part"], asyncio.run(self._rows(images)))
        except BatchError as error:
            return {"images": 0, "error": str(error)}
        except OSError as error:
            return {
                "images": 0,
                "error": f"cannot write {self._results.part_path(task['part'])}: {error.strerror or error}",
            }
        return {"images": len(images), "error": None}

    async def _rows(self, images: list[Image]) -> list[Row]:
        slots = asyncio.Semaphore(self._in_flight)
        async with AsyncClient(self._service.url, retries=MAX_RETRIES) as client:
            segmenter = Segmenter(client, self._service.weights, self._service.max_objects)

            async def row(image: Image) -> Row:
                async with slots:
                    return await segmenter.row(image, self._images.read)

            return await asyncio.gather(*map(row, images))


class Hasher:
    """Hashes files that may have changed."""

    def __init__(self, images: Store) -> None:
        self._images = images

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return the SHA-256 of the file at `path`, or None if it cannot be read."""
        return {"path": task["path"], "sha256": sha256_of(self._images, task["path"])}
