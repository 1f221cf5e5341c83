"""The Ray actor that segments the images of a part and writes its file."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.ray.errors import BatchError
from deploy.ray.plan import Image, Row
from mobile_sam_client import AsyncClient, MobileSamError, Weights
from mobile_sam_client.batches import Batch, LabelledImage, describe_error

if TYPE_CHECKING:
    from deploy.ray.results import Results


class PartRows:
    """The rows of some images, which their results fill."""

    def __init__(
        self,
        images: Iterable[Image],
        weights: Weights,
        read: Callable[[str], bytes],
    ) -> None:
        """Prepare the rows.

        Args:
            images: the images.
            weights: weights of all results.
            read: reads the file at a path.
        """
        self.requests: dict[str, dict[str, Any]] = {}
        """Request by path, as `Batch` takes it."""
        self.rows: dict[str, Row] = {}
        """Row by path."""
        for image in images:
            self.requests[image.path] = json.loads(image.asked)
            self.rows[image.path] = {**image._asdict(), "weights": weights.sha256}
        self._read = read

    def load(self, name: str, weights: Weights | None) -> tuple[bytes, None]:
        """Read an image file."""
        del weights  # the plan has looked for earlier results
        file = self._read(name)
        self.rows[name]["sha256"] = hashlib.sha256(file).hexdigest()
        return file, None

    def save(self, file: bytes, result: LabelledImage, weights: Weights | None) -> None:
        """Put the masks into the image's row."""
        del file, weights  # the row has them
        masks = []
        for fields in result.objects:
            others = {name: value for name, value in fields.items() if name != "segmentation"}
            rle = fields.get("segmentation", {})
            masks.append({**rle, **others})
        # Only the request for a data set has `objects`, each with its class and further fields.
        objects = self.requests[result.file_name].get("objects", ())
        for index, (class_name, fields) in enumerate(objects):
            masks[index] |= {
                "class": class_name,
                "fields": json.dumps(fields),
                "prompt": index,
            }
        row = self.rows[result.file_name]
        row |= {"width": result.width, "height": result.height, "masks": masks}


@dataclass(frozen=True)
class Worker:
    """Processes parts one after the other."""

    connect: Callable[[], AsyncClient]
    """Returns a new client of the service."""
    weights: Weights
    """Weights that all answers must come from."""
    in_flight: int
    """Maximum number of concurrent requests."""
    read: Callable[[str], bytes]
    """Reads the file at a path; called once per image, in a thread."""
    results: Results

    def process(self, name: str, images: list[Image]) -> tuple[int, str]:
        """Process a part; one that is repeated, after the death of its worker, replaces the first.

        Returns:
            The number of images, and the reason to stop the batch, or an empty one. A raised error
            would arrive wrapped in Ray's traceback.
        """
        part = PartRows(images, self.weights, self.read)
        batch = Batch(part.requests, part, weights=self.weights, with_points=True)
        try:
            asyncio.run(_run(batch, self.connect, self.in_flight))
            rows = [
                {**row, "error": batch.failures.get(path)}  # null without one
                for path, row in part.rows.items()
            ]
            self.results.write(name, rows)
        except (MobileSamError, BatchError, OSError) as error:
            return 0, describe_error(error, with_file=True)
        return len(images), ""


# Not a method: Ray runs all methods of a class with a coroutine in an event loop.
async def _run(batch: Batch, connect: Callable[[], AsyncClient], in_flight: int) -> None:
    async with connect() as client:
        await batch.run(client, in_flight)
