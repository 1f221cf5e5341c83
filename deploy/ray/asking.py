"""Asks the service about one image: whatever comes of it is a row."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

from deploy.ray.todo import BatchError, Image
from mobile_sam_client import (
    AsyncClient,
    MobileSamError,
    NotThisService,
    Prompt,
    Record,
    Segmentation,
    ServiceUnreachable,
    Unauthorized,
)

Row = dict[str, Any]


class Asker:
    """Asks one service, by a client that is open."""

    def __init__(self, client: AsyncClient, weights: str, most_prompts: int) -> None:
        """Take a client.

        Args:
            client: of the service.
            weights: SHA-256 of those that all answers must come from.
            most_prompts: of one request.
        """
        self._client, self._weights, self._most = client, weights, most_prompts

    async def row(self, image: Image, read: Callable[[str], bytes]) -> Row:
        """What there is to say of an image, its error included.

        Args:
            image: and what is asked about it.
            read: the bytes of the file at a path; called once, in a thread.

        Raises:
            BatchError: it has nothing to do with this image: the service is gone, wants a key, or has other weights.
        """
        row: Row = {**image._asdict(), "weights": self._weights, "masks": None}
        try:
            file = await asyncio.to_thread(read, image.path)
            row["sha256"] = hashlib.sha256(file).hexdigest()
            return row | await self._ask(file, json.loads(image.asked))
        except Unauthorized as error:
            raise BatchError(f"{error}; set MOBILE_SAM_API_KEY wherever Ray was started") from None
        except (ServiceUnreachable, NotThisService) as error:
            if not await self._service_answers():
                raise BatchError(f"{error}; what is done is kept, and the same command goes on from there") from None
            return row | {"error": _words(error)}
        except (MobileSamError, OSError, ValueError, TypeError) as error:
            return row | {"error": _words(error)}

    async def _ask(self, file: bytes, asked: dict[str, Any]) -> Row:
        if "everything" in asked:
            everything = await self._client.everything(file, **asked["everything"])
            self._check_weights(everything.weights.sha256)
            masks = [_of_record(record) for record in everything.masks]
            return {"width": everything.width, "height": everything.height, "masks": masks}
        prompts = [Prompt(**fields) for fields in asked["prompts"]]
        if not prompts:
            raise ValueError("prompts: expected at least one object to find, got none")
        found: list[Segmentation] = []
        for start in range(0, len(prompts), self._most):
            found += await self._client.segment_many(file, prompts[start : start + self._most])
            self._check_weights(found[-1].weights.sha256)
        masks = [_of_segmentation(one, index) for index, one in enumerate(found)]
        return {"width": found[0].width, "height": found[0].height, "masks": masks}

    def _check_weights(self, sha256: str) -> None:
        if sha256 != self._weights:
            raise BatchError(
                f"expected answers of the weights {self._weights[:12]} alone, got one of {sha256[:12]}: give all "
                "services the same weights, and run the same command again"
            )

    async def _service_answers(self) -> bool:
        try:
            await self._client.info()
        except MobileSamError:
            return False
        return True


def _of_record(record: Record) -> Row:
    return {
        **record.rle,
        "area": record.area,
        "bbox": record.bbox_xywh,
        "score": record.predicted_iou,
        "stability_score": record.stability_score,
        "point": record.point_coords[0],
    }


def _of_segmentation(found: Segmentation, prompt: int) -> Row:
    x0, y0, x1, y1 = found.box_xyxy
    return {
        **found.rle,
        "area": found.area,
        "bbox": (x0, y0, x1 - x0, y1 - y0),
        "score": found.score,
        "prompt": prompt,
    }


def _words(error: Exception) -> str:
    """What happened, in one line."""
    words = error.strerror if isinstance(error, OSError) else None
    return " ".join((words or str(error) or type(error).__name__).split())
