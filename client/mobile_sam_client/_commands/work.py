"""Many images asked at once: what is done is kept, one that fails never stops the rest."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mobile_sam_client import AsyncClient, Info, MobileSamError, Segmentation, ServiceUnreachable, Unauthorized, Weights
from mobile_sam_client._commands.coco import LabelledImage, described, objects_of
from mobile_sam_client._commands.failures import CannotWrite, CommandError, cause
from mobile_sam_client._commands.files import read_image
from mobile_sam_client._commands.overlays import write_overlay
from mobile_sam_client._commands.prompt_file import prompt_of
from mobile_sam_client._commands.records import Question, Records

NO_USE_GOING_ON = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Errors in writing that every further image would meet, too."""


class WeightsChanged(CommandError):
    """The service was started anew with other weights."""


@dataclass
class Tally:
    """How far the work is."""

    total: int
    weights: Weights | None = None
    """What the service has; None where it does not say."""
    asked: list[str] = field(default_factory=list)
    """Images that the service was asked about."""
    kept: list[str] = field(default_factory=list)
    """Images that were done before."""
    failures: dict[str, str] = field(default_factory=dict)
    """Images that could not be done, and why."""

    @property
    def done(self) -> list[str]:
        """Images that are done, sorted."""
        return sorted(self.asked + self.kept)


@dataclass(frozen=True)
class Places:
    """Where images lie and results go."""

    images: Path
    records: Records
    overlays: Path
    draw: bool
    """Whether overlays are wanted."""

    def overlay(self, name: str) -> Path:
        """Where an image's overlay goes; its own ending stays in the name, so that `a.png` and `a.jpg` have two."""
        return self.overlays / f"{name}.jpg"


class Work:
    """Images to be done with one service."""

    def __init__(self, client: AsyncClient, info: Info, places: Places, tally: Tally) -> None:
        """Prepare; nothing is sent yet.

        Args:
            client: of the service.
            info: what the service says of itself.
            places: where images lie and results go.
            tally: is kept up to date, also where `run` does not come to its end.
        """
        self._client, self._info, self._places, self._tally = client, info, places, tally

    async def run(self, jobs: Mapping[str, dict[str, Any]], concurrency: int, report: Callable[[], None]) -> None:
        """Do all images.

        Args:
            jobs: names of images, and what each is asked: `everything` with its parameters, or a list of `prompts`.
            concurrency: how many at once.
            report: is called after each.

        Raises:
            MobileSamError: the service is gone, or wants a key.
            WeightsChanged: results would come from two models.
            CannotWrite: the disk is full, or broken.
        """
        waiting = iter(jobs.items())

        async def worker() -> None:
            for name, asked in waiting:
                await self._try(name, asked)
                report()

        workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for one in workers:
                one.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _try(self, name: str, asked: dict[str, Any]) -> None:
        try:
            await self._do(name, asked)
        except (WeightsChanged, Unauthorized):
            raise
        except ServiceUnreachable as error:
            if not await self._service_answers():
                raise
            self._tally.failures[name] = cause(error)
        except CannotWrite as error:
            if error.errno in NO_USE_GOING_ON:
                raise
            self._tally.failures[name] = cause(error)
        except (MobileSamError, CommandError, OSError, ValueError) as error:
            self._tally.failures[name] = cause(error)

    async def _do(self, name: str, asked: dict[str, Any]) -> None:
        file = await asyncio.to_thread(read_image, self._places.images / name)
        weights = self._info.weights
        question = await asyncio.to_thread(Question.about, file, asked, weights.sha256 if weights else None)
        known = await asyncio.to_thread(self._places.records.read, name, question)
        found = known or await self._ask(name, file, asked)
        await asyncio.to_thread(self._keep, file, question, found, known is not None)
        (self._tally.kept if known else self._tally.asked).append(name)

    async def _ask(self, name: str, file: bytes, asked: dict[str, Any]) -> LabelledImage:
        if "everything" in asked:
            everything = await self._client.everything(file, **asked["everything"])
            self._check_weights(everything.weights.sha256)
            return LabelledImage(name, everything.width, everything.height, objects_of(everything.masks))
        prompts, most = [prompt_of(fields) for fields in asked["prompts"]], self._info.max_objects
        found: list[Segmentation] = []
        for start in range(0, len(prompts), most):
            found += await self._client.segment_many(file, prompts[start : start + most])
            self._check_weights(found[-1].weights.sha256)
        objects = [described(one.rle, one.score, prompt=index) for index, one in enumerate(found)]
        return LabelledImage(name, found[0].width, found[0].height, objects)

    def _keep(self, file: bytes, question: Question, found: LabelledImage, known: bool) -> None:
        """Write what was found. The record comes last: what a killed run leaves has none, or an old one, and is redone.

        Raises:
            CommandError: the image cannot be drawn on, or a file not be written.
        """
        overlay = self._places.overlay(found.file_name)
        if self._places.draw and not (known and overlay.exists()):
            write_overlay(overlay, file, [one["segmentation"] for one in found.objects])
        if not known:
            if not self._places.draw:
                overlay.unlink(missing_ok=True)  # it shows what was found on another occasion
            self._places.records.write(question, found)

    def _check_weights(self, sha256: str) -> None:
        if self._info.weights is not None and self._info.weights.sha256 != sha256:
            raise WeightsChanged("the service was started anew with other weights")

    async def _service_answers(self) -> bool:
        try:
            await self._client.info()
        except MobileSamError:
            return False
        return True
