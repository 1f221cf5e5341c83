"""Concurrent segmentation of many images, with results kept and failures collected."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobile_sam_client import AsyncClient, Info, MobileSamError, Prompt, ServiceUnreachable, Unauthorized, Weights
from mobile_sam_client._commands.coco import LabelledImage, Records, record_question
from mobile_sam_client._commands.files import read_image, write_overlay
from mobile_sam_client._commands.output import CannotWrite, CommandError, describe
from mobile_sam_client._exports import coco_fields

FATAL_WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Write errors that would occur for every other image too."""


class WeightsChanged(CommandError):
    """The service was restarted with other weights."""


@dataclass
class Batch:
    """The images of a batch, and how far their segmentation has come, even after `run` has failed."""

    images: Path
    """Folder of the images."""
    out: Path
    """Folder for the results."""
    draw: bool
    """True to draw overlays."""
    jobs: dict[str, dict[str, Any]]
    """Per image name the request: `everything` with its parameters, or a list of `prompts`."""
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

    @property
    def records(self) -> Records:
        """The results per image."""
        return Records(self.out / "records")

    async def run(self, client: AsyncClient, info: Info, concurrency: int, on_image: Callable[[], None]) -> None:
        """Segment all images with one service.

        Args:
            client: client of the service.
            info: the service's answer to `info`.
            concurrency: number of concurrent requests.
            on_image: called after each image.

        Raises:
            MobileSamError: the service is unreachable, or rejects the API key.
            WeightsChanged: the results would come from two models.
            CannotWrite: the disk is full or broken.
        """
        self.weights = info.weights
        remaining = iter(self.jobs.items())

        async def worker() -> None:
            for name, request in remaining:
                try:
                    await self._find_or_segment(name, request, client, info.max_objects)
                except (MobileSamError, CommandError, OSError, ValueError) as error:
                    if await _is_fatal(error, client):
                        raise
                    self.failures[name] = describe(error)
                on_image()

        workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _find_or_segment(self, name: str, request: dict[str, Any], client: AsyncClient, max_objects: int) -> None:
        file = await asyncio.to_thread(read_image, self.images / name)
        question = await asyncio.to_thread(record_question, file, request, self.weights)
        known = await asyncio.to_thread(self.records.read, name, question)
        result = known
        if result is None and "everything" in request:
            everything = await client.everything(file, **request["everything"])
            self._check_weights(everything.weights)
            result = LabelledImage(
                name, everything.width, everything.height, [coco_fields(record) for record in everything]
            )
        elif result is None:
            result = await self._segment(name, file, request["prompts"], client, max_objects)
        await asyncio.to_thread(self._save, file, question, result, known is not None)
        (self.skipped if known else self.processed).append(name)

    async def _segment(
        self, name: str, file: bytes, objects: list[dict[str, Any]], client: AsyncClient, max_objects: int
    ) -> LabelledImage:
        """Segment the objects of a prompt file, as many per request as the service allows."""
        prompts, annotations = [Prompt(**fields) for fields in objects], []
        for start in range(0, len(prompts), max_objects):
            found = await client.segment_many(file, prompts[start : start + max_objects])
            self._check_weights(found[-1].weights)
            annotations += [{**coco_fields(one), "prompt": index} for index, one in enumerate(found, start)]
        return LabelledImage(name, found[0].width, found[0].height, annotations)

    def _save(self, file: bytes, question: dict[str, Any], result: LabelledImage, known: bool) -> None:
        """Write overlay and record. The record comes last, so that an image interrupted between them is redone.

        Raises:
            CommandError: the image cannot be drawn on, or a file cannot be written.
        """
        # The overlay keeps the image's suffix, so that those of `a.png` and `a.jpg` do not collide.
        overlay = self.out / "overlays" / f"{result.file_name}.jpg"
        if self.draw and not (known and overlay.exists()):
            write_overlay(overlay, file, [fields["segmentation"] for fields in result.objects])
        if not known:
            if not self.draw:
                overlay.unlink(missing_ok=True)  # outdated
            self.records.write(question, result)

    def _check_weights(self, weights: Weights) -> None:
        if self.weights is not None and self.weights.sha256 != weights.sha256:
            raise WeightsChanged("the service was restarted with other weights")


async def _is_fatal(error: Exception, client: AsyncClient) -> bool:
    """Return True if the error would occur for every other image too."""
    if isinstance(error, ServiceUnreachable):
        try:
            await client.info()
        except MobileSamError:
            return True
    full_disk = isinstance(error, CannotWrite) and error.errno in FATAL_WRITE_ERRNOS
    return full_disk or isinstance(error, (WeightsChanged, Unauthorized))
