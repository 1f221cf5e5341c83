"""The actor that Ray starts on its machines: takes a part, asks the service about its images, writes the file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from deploy.ray.asking import Asker, Row
from deploy.ray.files import Store
from deploy.ray.results import Results, sha256_of
from deploy.ray.todo import BatchError, Image
from mobile_sam_client import AsyncClient

PATIENCE = 20
"""Retries of a request to a service that is busy or away: about five minutes, and as long once more to find out whether
the service is at fault or the image. In that time a service is started again."""


@dataclass(frozen=True)
class Service:
    """What workers need to know of the service."""

    url: str
    weights: str
    """SHA-256."""
    max_objects: int
    """Prompts of one request."""


class Worker:
    """Does one part after the other, with so many images of it under way at once."""

    def __init__(self, images: Store, results: Results, service: Service, in_flight: int) -> None:
        self._images, self._results, self._service, self._in_flight = images, results, service, in_flight

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """Do a part, unless it has been written: then whoever did so came to a sudden end afterwards.

        Args:
            task: `part`, its name, and `images`.

        Returns:
            `images`: how many there were; `ended`: why no image can be done at present, where that is so. As an error
            it would come through Ray with a report of its way.
        """
        images = [Image(**image) for image in task["images"]]
        try:
            if not self._results.is_written(task["part"]):
                self._results.write(task["part"], asyncio.run(self._rows(images)))
        except BatchError as error:
            return {"images": 0, "ended": str(error)}
        except OSError as error:
            return {"images": 0, "ended": f"cannot write {self._results.part(task['part'])}: {error.strerror or error}"}
        return {"images": len(images), "ended": None}

    async def _rows(self, images: list[Image]) -> list[Row]:
        room = asyncio.Semaphore(self._in_flight)
        async with AsyncClient(self._service.url, retries=PATIENCE) as client:
            asker = Asker(client, self._service.weights, self._service.max_objects)

            async def row(image: Image) -> Row:
                async with room:
                    return await asker.row(image, self._images.read)

            return await asyncio.gather(*map(row, images))


class Hasher:
    """Reads files that may have changed."""

    def __init__(self, images: Store) -> None:
        self._images = images

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """The SHA-256 of the file at `path`; none of one that cannot be read."""
        return {"path": task["path"], "sha256": sha256_of(self._images, task["path"])}
