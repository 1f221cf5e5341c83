"""The Ray actor that segments the images of a part and writes its file."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.ray.plan import BatchError, Image, Row
from mobile_sam_client import (
    AsyncClient,
    Everything,
    MobileSamError,
    NotThisService,
    Prompt,
    Segmentation,
    ServiceUnreachable,
    Unauthorized,
)
from mobile_sam_client._datasets.shapes import segment_prompts, segment_shapes

if TYPE_CHECKING:
    import pyarrow as pa

    from deploy.ray.results import Results


@dataclass(frozen=True)
class Worker:
    """Processes parts one after the other."""

    connect: Callable[[], AsyncClient]
    """Returns a new client of the service."""
    weights: str
    """SHA-256 of the weights that all answers must come from."""
    max_prompts: int
    """Maximum number of prompts per request."""
    in_flight: int
    """Maximum number of concurrent requests."""
    read: Callable[[str], bytes]
    """Reads the file at a path; called once per image, in a thread."""
    results: Results

    def __call__(self, batch: pa.Table) -> dict[str, list[Any]]:
        """Process a part, unless a worker that died afterwards has already written it.

        Args:
            batch: the images, with the fields of `Image` as columns.

        Returns:
            `images`: number of images; `error`: reason to stop the batch, or empty. A raised error would arrive
            wrapped in Ray's traceback.
        """
        images = [Image(**row) for row in batch.to_pylist()]
        # A part that is repeated has the same name, so that it replaces the first.
        digest = hashlib.sha256(json.dumps([self.weights, *images]).encode()).hexdigest()
        path, error = self.results.part_path(f"part-{digest[:32]}.parquet"), ""
        try:
            if not self.results.store.exists(path):
                self.results.write(path, asyncio.run(self.rows(images)))
        except BatchError as stopped:
            error = str(stopped)
        except OSError as failed:
            error = f"cannot write {path}: {failed.strerror or failed}"
        return {"images": [len(images)], "error": [error]}

    async def rows(self, images: list[Image]) -> list[Row]:
        """Return the row of each image, with its masks or its error.

        Raises:
            BatchError: the service is unreachable, rejects the API key, or has other weights.
        """
        slots = asyncio.Semaphore(self.in_flight)
        async with self.connect() as client:

            async def row(image: Image) -> Row:
                async with slots:
                    return await self._row(client, image)

            return await asyncio.gather(*map(row, images))

    async def _row(self, client: AsyncClient, image: Image) -> Row:
        row: Row = {**image._asdict(), "weights": self.weights, "masks": None}
        try:
            file = await asyncio.to_thread(self.read, image.path)
            row["sha256"] = hashlib.sha256(file).hexdigest()
            answers, masks = await self._segment(client, file, json.loads(image.asked))
        except Unauthorized as error:
            raise BatchError(f"{error}; set MOBILE_SAM_API_KEY where Ray is started") from None
        except (MobileSamError, OSError, ValueError, TypeError) as error:
            if isinstance(error, (ServiceUnreachable, NotThisService)):
                try:
                    await client.info()
                except MobileSamError:
                    raise BatchError(f"{error}; finished images are kept, run the same command to resume") from None
            text = error.strerror if isinstance(error, OSError) else None
            row["error"] = " ".join((text or str(error) or type(error).__name__).split())
            return row
        if others := {answer.weights.sha256 for answer in answers} - {self.weights}:
            raise BatchError(
                f"expected answers from weights {self.weights[:12]}, got one from {others.pop()[:12]}: use the same "
                "weights for all services and run the same command again"
            )
        size = {"width": answers[0].width, "height": answers[0].height} if answers else {}
        return row | size | {"masks": masks}

    async def _segment(
        self, client: AsyncClient, file: bytes, request: dict[str, Any]
    ) -> tuple[list[Everything] | list[Segmentation], list[Row]]:
        """Return the answers for an image, and its masks."""
        if "everything" in request:
            everything = await client.everything(file, **request["everything"])
            return [everything], [
                {
                    **record.rle,
                    "area": record.area,
                    "bbox": record.bbox_xywh,
                    "score": record.predicted_iou,
                    "stability_score": record.stability_score,
                    "point": record.point_coords[0],
                }
                for record in everything.masks
            ]
        if "shapes" in request:
            _, found, masks = await segment_shapes(client, file, request, self.max_prompts)
            objects = zip(request["objects"], masks, strict=True)
            return found, [
                {**mask.pop("segmentation", {}), **mask, "class": name, "fields": json.dumps(fields), "prompt": index}
                for index, ((name, fields), mask) in enumerate(objects)
            ]
        prompts = [Prompt(**fields) for fields in request["prompts"]]
        found = await segment_prompts(client, file, prompts, self.max_prompts)
        return found, [
            {**mask.rle, "area": mask.area, "bbox": mask.bbox_xywh, "score": mask.score, "prompt": index}
            for index, mask in enumerate(found)
        ]
