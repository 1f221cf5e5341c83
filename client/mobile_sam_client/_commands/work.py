"""Concurrent segmentation of many images, with results kept and failures collected."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobile_sam_client import AsyncClient, Info, MobileSamError, Segmentation, ServiceUnreachable, Unauthorized, Weights
from mobile_sam_client._commands.coco import LabelledImage, coco_object, coco_objects
from mobile_sam_client._commands.failures import CannotWrite, CommandError, describe
from mobile_sam_client._commands.files import read_image
from mobile_sam_client._commands.overlays import write_overlay
from mobile_sam_client._commands.prompt_file import prompt_of
from mobile_sam_client._commands.records import RecordKey, Records

FATAL_WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Write errors that would occur for every other image too."""


class WeightsChanged(CommandError):
    """The service was restarted with other weights."""


@dataclass
class BatchState:
    """Progress of a batch."""

    total: int
    weights: Weights | None = None
    """Weights of the service; None if it does not report them."""
    processed: list[str] = field(default_factory=list)
    """Images segmented in this run."""
    skipped: list[str] = field(default_factory=list)
    """Images with a result of an earlier run."""
    failures: dict[str, str] = field(default_factory=dict)
    """Failed images, with reasons."""

    @property
    def done(self) -> list[str]:
        """Processed and skipped images, sorted."""
        return sorted(self.processed + self.skipped)


@dataclass(frozen=True)
class BatchFolders:
    """Locations of images and results."""

    images: Path
    records: Records
    overlays: Path
    draw: bool
    """True to draw overlays."""

    def overlay(self, name: str) -> Path:
        """Return the path of an image's overlay; it keeps the image's suffix, so `a.png` and `a.jpg` do not collide."""
        return self.overlays / f"{name}.jpg"


class BatchRunner:
    """Segments the images of a batch with one service."""

    def __init__(self, client: AsyncClient, info: Info, folders: BatchFolders, state: BatchState) -> None:
        """Create the runner; nothing is sent yet.

        Args:
            client: client of the service.
            info: the service's answer to `info`.
            folders: locations of images and results.
            state: progress, kept up to date even if `run` fails.
        """
        self._client, self._info, self._folders, self._state = client, info, folders, state

    async def run(self, jobs: Mapping[str, dict[str, Any]], concurrency: int, on_image: Callable[[], None]) -> None:
        """Process all images.

        Args:
            jobs: per image name the request: `everything` with its parameters, or a list of `prompts`.
            concurrency: number of concurrent requests.
            on_image: called after each image.

        Raises:
            MobileSamError: the service is unreachable, or rejects the API key.
            WeightsChanged: the results would come from two models.
            CannotWrite: the disk is full or broken.
        """
        remaining = iter(jobs.items())

        async def worker() -> None:
            for name, request in remaining:
                await self._process(name, request)
                on_image()

        workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _process(self, name: str, request: dict[str, Any]) -> None:
        try:
            await self._find_or_segment(name, request)
        except (WeightsChanged, Unauthorized):
            raise
        except ServiceUnreachable as error:
            if not await self._service_reachable():
                raise
            self._state.failures[name] = describe(error)
        except CannotWrite as error:
            if error.errno in FATAL_WRITE_ERRNOS:
                raise
            self._state.failures[name] = describe(error)
        except (MobileSamError, CommandError, OSError, ValueError) as error:
            self._state.failures[name] = describe(error)

    async def _find_or_segment(self, name: str, request: dict[str, Any]) -> None:
        file = await asyncio.to_thread(read_image, self._folders.images / name)
        weights = self._info.weights
        key = await asyncio.to_thread(RecordKey.for_image, file, request, weights.sha256 if weights else None)
        known = await asyncio.to_thread(self._folders.records.read, name, key)
        result = known or await self._segment(name, file, request)
        await asyncio.to_thread(self._save, file, key, result, known is not None)
        (self._state.skipped if known else self._state.processed).append(name)

    async def _segment(self, name: str, file: bytes, request: dict[str, Any]) -> LabelledImage:
        if "everything" in request:
            everything = await self._client.everything(file, **request["everything"])
            self._check_weights(everything.weights.sha256)
            return LabelledImage(name, everything.width, everything.height, coco_objects(everything.masks))
        prompts, limit = [prompt_of(fields) for fields in request["prompts"]], self._info.max_objects
        found: list[Segmentation] = []
        for start in range(0, len(prompts), limit):
            found += await self._client.segment_many(file, prompts[start : start + limit])
            self._check_weights(found[-1].weights.sha256)
        objects = [coco_object(result.rle, result.score, prompt=index) for index, result in enumerate(found)]
        return LabelledImage(name, found[0].width, found[0].height, objects)

    def _save(self, file: bytes, key: RecordKey, result: LabelledImage, known: bool) -> None:
        """Write overlay and record. The record comes last, so that an image interrupted between them is redone.

        Raises:
            CommandError: the image cannot be drawn on, or a file cannot be written.
        """
        overlay = self._folders.overlay(result.file_name)
        if self._folders.draw and not (known and overlay.exists()):
            write_overlay(overlay, file, [fields["segmentation"] for fields in result.objects])
        if not known:
            if not self._folders.draw:
                overlay.unlink(missing_ok=True)  # outdated
            self._folders.records.write(key, result)

    def _check_weights(self, sha256: str) -> None:
        if self._info.weights is not None and self._info.weights.sha256 != sha256:
            raise WeightsChanged("the service was restarted with other weights")

    async def _service_reachable(self) -> bool:
        try:
            await self._client.info()
        except MobileSamError:
            return False
        return True
