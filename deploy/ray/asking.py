"""Segmentation of one image; the result or error becomes a row."""

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


class Segmenter:
    """Segments images with one service."""

    def __init__(self, client: AsyncClient, weights: str, max_prompts: int) -> None:
        """Use an open client.

        Args:
            client: client of the service.
            weights: SHA-256 of the weights that all answers must come from.
            max_prompts: maximum number of prompts per request.
        """
        self._client, self._weights, self._max_prompts = client, weights, max_prompts

    async def row(self, image: Image, read: Callable[[str], bytes]) -> Row:
        """Return the row of an image, with its masks or its error.

        Args:
            image: the image and its request.
            read: reads the file at a path; called once, in a thread.

        Raises:
            BatchError: the service is unreachable, rejects the API key, or has other weights.
        """
        row: Row = {**image._asdict(), "weights": self._weights, "masks": None}
        try:
            file = await asyncio.to_thread(read, image.path)
            row["sha256"] = hashlib.sha256(file).hexdigest()
            return row | await self._segment(file, json.loads(image.asked))
        except Unauthorized as error:
            raise BatchError(f"{error}; set MOBILE_SAM_API_KEY where Ray is started") from None
        except (ServiceUnreachable, NotThisService) as error:
            if not await self._service_reachable():
                raise BatchError(f"{error}; finished images are kept, run the same command to resume") from None
            return row | {"error": _describe(error)}
        except (MobileSamError, OSError, ValueError, TypeError) as error:
            return row | {"error": _describe(error)}

    async def _segment(self, file: bytes, request: dict[str, Any]) -> Row:
        if "everything" in request:
            everything = await self._client.everything(file, **request["everything"])
            self._check_weights(everything.weights.sha256)
            masks = [_record_row(record) for record in everything.masks]
            return {"width": everything.width, "height": everything.height, "masks": masks}
        prompts = [Prompt(**fields) for fields in request["prompts"]]
        if not prompts:
            raise ValueError("prompts: expected at least one object, got none")
        found: list[Segmentation] = []
        for start in range(0, len(prompts), self._max_prompts):
            found += await self._client.segment_many(file, prompts[start : start + self._max_prompts])
            self._check_weights(found[-1].weights.sha256)
        masks = [_segmentation_row(result, index) for index, result in enumerate(found)]
        return {"width": found[0].width, "height": found[0].height, "masks": masks}

    def _check_weights(self, sha256: str) -> None:
        if sha256 != self._weights:
            raise BatchError(
                f"expected answers from weights {self._weights[:12]}, got one from {sha256[:12]}: use the same weights "
                "for all services and run the same command again"
            )

    async def _service_reachable(self) -> bool:
        try:
            await self._client.info()
        except MobileSamError:
            return False
        return True


def _record_row(record: Record) -> Row:
    return {
        **record.rle,
        "area": record.area,
        "bbox": record.bbox_xywh,
        "score": record.predicted_iou,
        "stability_score": record.stability_score,
        "point": record.point_coords[0],
    }


def _segmentation_row(found: Segmentation, prompt: int) -> Row:
    x0, y0, x1, y1 = found.box_xyxy
    return {
        **found.rle,
        "area": found.area,
        "bbox": (x0, y0, x1 - x0, y1 - y0),
        "score": found.score,
        "prompt": prompt,
    }


def _describe(error: Exception) -> str:
    """Return the error in one line."""
    text = error.strerror if isinstance(error, OSError) else None
    return " ".join((text or str(error) or type(error).__name__).split())
