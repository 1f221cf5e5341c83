"""The segmentation of many images with one service, whose files and results may be anywhere."""

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mobile_sam_client import AsyncClient, Prompt, Record, Segmentation, Weights
from mobile_sam_client._commands import connection, output
from mobile_sam_client._commands.output import CannotWrite, CommandError
from mobile_sam_client._datasets.shapes import segment_prompts, segment_shapes
from mobile_sam_client._errors import MobileSamError, NotThisService, ServiceUnreachable, Unauthorized
from mobile_sam_client._exports import coco_fields

FATAL_WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Write errors that would occur for every other image too."""


class WeightsChanged(CommandError):
    """The results would come from two models."""


class LabelledImage(NamedTuple):
    """An image and its objects."""

    file_name: str
    width: int
    height: int
    objects: list[dict[str, Any]]
    """Objects as returned by `coco_fields`, possibly with more members."""


@dataclass
class Run:
    """The images to segment, and how far that has come, even after `segment_all` has failed."""

    jobs: Mapping[str, Mapping[str, Any]]
    """Per image name the request: `everything` with its parameters, a list of `prompts` and possibly `clip`, or
    `shapes` as for `segment_shapes`."""
    weights: Weights | None = None
    """Weights that all results come from, by default those of the service; None if it does not report them."""
    max_objects: int = 1
    """Maximum number of prompts per request."""
    done: dict[str, bool] = field(default_factory=dict)
    """Per segmented image whether its result is that of an earlier run."""
    failures: dict[str, str] = field(default_factory=dict)
    """Failed images, with reasons."""

    def load(self, name: str) -> tuple[bytes, LabelledImage | None]:
        """Return an image file, and its result if it is known. Called in a thread."""
        raise NotImplementedError

    def save(self, file: bytes, result: LabelledImage) -> None:
        """Keep the result for an image file. Called in a thread."""
        raise NotImplementedError

    async def segment_all(self, connect: Callable[[], AsyncClient], concurrency: int) -> None:
        """Segment all images with one service.

        Raises:
            MobileSamError: the service is unreachable, or rejects the API key.
            WeightsChanged: the results would come from two models.
            CannotWrite: the disk is full or broken.
        """
        async with connect() as client:
            info = await client.info()
            self._check_weights(info.weights)
            self.weights, self.max_objects = info.weights or self.weights, info.max_objects

            async def work(name: str) -> None:
                try:
                    file, known = await asyncio.to_thread(self.load, name)
                    if known is None:
                        await asyncio.to_thread(self.save, file, await self._segment(name, file, client))
                    self.done[name] = known is not None
                except (MobileSamError, CommandError, OSError, ValueError) as error:
                    if await _is_fatal(error, client):
                        raise
                    self.failures[name] = output.describe(error)

            await connection.run_concurrently(self.jobs, work, concurrency)

    async def _segment(self, name: str, file: bytes, client: AsyncClient) -> LabelledImage:
        request = self.jobs[name]
        if "everything" in request:
            found = await client.everything(file, **request["everything"])
            self._check_weights(found.weights)
            return LabelledImage(name, found.width, found.height, [self.record_fields(record) for record in found])
        if "shapes" in request:
            size_wh, masks, objects = await segment_shapes(client, file, request, self.max_objects)
        else:
            prompts = [Prompt(**fields) for fields in request["prompts"]]
            clip = bool(request.get("clip"))
            masks = await segment_prompts(client, file, prompts, self.max_objects, clip=clip)
            objects = [prompt_fields(mask, index) for index, mask in enumerate(masks)]
            size_wh = masks[0].width, masks[0].height
        for mask in masks:
            self._check_weights(mask.weights)
        return LabelledImage(name, *size_wh, objects)

    def record_fields(self, record: Record) -> dict[str, Any]:
        """Return what is kept of a mask of everything."""
        return coco_fields(record)

    def _check_weights(self, weights: Weights | None) -> None:
        if self.weights and weights and self.weights.sha256 != weights.sha256:
            raise WeightsChanged("the service was restarted with other weights, or one of its replicas has others")


def prompt_fields(mask: Segmentation, index: int) -> dict[str, Any]:
    """Return what is kept of the mask of a prompt, with the fields of the prompt that were cut to the image."""
    fields = {**coco_fields(mask), "prompt": index}
    return {**fields, "clipped": list(mask.clipped)} if mask.clipped else fields


async def _is_fatal(error: Exception, client: AsyncClient) -> bool:
    """Return True if the error would occur for every other image too."""
    if isinstance(error, (ServiceUnreachable, NotThisService)):
        try:
            await client.info()
        except MobileSamError:
            return True
    full_disk = isinstance(error, CannotWrite) and error.errno in FATAL_WRITE_ERRNOS
    return full_disk or isinstance(error, (WeightsChanged, Unauthorized))
