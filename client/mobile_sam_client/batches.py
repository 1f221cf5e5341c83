"""Segmentation of many images with one service, whose files and results may be anywhere.

    class Results:
        def load(self, name, weights):
            return Path(name).read_bytes(), None

        def save(self, file, result, weights):
            Path(f"{result.file_name}.json").write_text(json.dumps(result.objects))

    batch = Batch({"photo.jpg": {"everything": {"points_per_side": 8}}}, Results())
    async with AsyncClient() as client:
        await batch.run(client, concurrency=4)
    print(batch.failures)

`mobile-sam batch`, `mobile-sam masks` and the workers on Ray run this.
"""

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, Protocol, TypeVar

from mobile_sam_client._client import AsyncClient
from mobile_sam_client._errors import (
    MobileSamError,
    NotThisService,
    ServiceUnreachable,
    Unauthorized,
    describe_error,
)
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._prompts import Prompt
from mobile_sam_client._results import Everything, Record, Segmentation
from mobile_sam_client._service_info import Weights
from mobile_sam_client._shapes import segment_prompts, segment_shapes

__all__ = [
    "Batch",
    "BatchFiles",
    "CannotWrite",
    "LabelledImage",
    "WeightsChanged",
    "check_prompts",
    "describe_error",
]

FATAL_WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Write errors that would occur for every other image too."""
PROMPT_FIELDS = [field.name for field in fields(Prompt) if field.name != "mask_input"]

T = TypeVar("T")


class WeightsChanged(MobileSamError):
    """The results of a batch would come from two models."""


class CannotWrite(OSError):
    """A result cannot be written. It stops a batch if the disk is full or broken."""

    def __init__(self, path: str | os.PathLike[str], error: OSError) -> None:
        """Create the error about a file from that of the operating system."""
        super().__init__(error.errno, f"cannot write {path}: {error.strerror or error}")


class LabelledImage(NamedTuple):
    """An image and its objects."""

    file_name: str
    width: int
    """Width of the displayed image in pixels."""
    height: int
    objects: list[dict[str, Any]]
    """Members of the objects' COCO annotations, such as `segmentation` and `bbox`.

    An object of `prompts` has its index as `prompt`, and `clipped` if fields of its prompt were
    changed. One of `shapes` has `box_iou` and `note`; without a mask, only `note` that says why.
    """


class BatchFiles(Protocol):
    """The source of a batch's images and the place of its results.

    The methods are called in threads, for several images at once.
    """

    def load(self, name: str, weights: Weights | None) -> tuple[bytes, LabelledImage | None]:
        """Return an image file, and its result if an earlier run has it.

        Args:
            name: name of the image.
            weights: the service's weights; None if it does not report them.
        """

    def save(self, file: bytes, result: LabelledImage, weights: Weights | None) -> None:
        """Keep the result for an image file.

        Raises:
            CannotWrite: it cannot be written.
        """


class Batch:
    """The images to segment, and how far that has come, even after `run` has failed."""

    def __init__(
        self,
        requests: Mapping[str, Mapping[str, Any]],
        files: BatchFiles,
        *,
        weights: Weights | None = None,
        with_points: bool = False,
    ) -> None:
        """Create a batch; nothing is sent yet.

        Args:
            requests: per image name one of: `everything`, a dict of `EverythingOptions`;
                `prompts`, a list of fields of `Prompt`, and possibly `clip`; `shapes`, `relative`
                and `size_wh`, as `DatasetImage.request` returns them.
            files: reads the images and writes the results.
            weights: weights that all results must come from. None: those of the service.
            with_points: True to add `point`, the x and y of its prompt, to objects of `everything`.
        """
        self.requests = requests
        self.weights = weights
        """Weights that all results come from; None if the service does not report them."""
        self.done: dict[str, bool] = {}
        """Per segmented image whether its result is that of an earlier run."""
        self.failures: dict[str, str] = {}
        """Failed images, with reasons."""
        self._files = files
        self._with_points = with_points
        self._max_objects = 1

    async def run(
        self,
        client: AsyncClient,
        concurrency: int,
        on_image: Callable[[], None] = lambda: None,
    ) -> None:
        """Segment all images. Images that fail do not stop the batch.

        Args:
            client: client of the service.
            concurrency: number of images in work at a time.
            on_image: called after each image.

        Raises:
            MobileSamError: the service is unreachable, or rejects the API key.
            WeightsChanged: the results would come from two models.
            CannotWrite: the disk is full or broken.
        """
        info = await client.info()
        self._check_weights(info.weights)
        self.weights = info.weights or self.weights
        self._max_objects = info.max_objects

        async def work(name: str) -> None:
            try:
                self.done[name] = await self._process(name, client)
            except (MobileSamError, OSError, ValueError) as error:
                if await _is_fatal(error, client):
                    raise
                self.failures[name] = describe_error(error)
            on_image()

        await _run_concurrently(self.requests, work, concurrency)

    async def _process(self, name: str, client: AsyncClient) -> bool:
        """Segment an image, and return whether an earlier run had done so."""
        file, earlier_result = await asyncio.to_thread(self._files.load, name, self.weights)
        if earlier_result is not None:
            return True
        result = await self._segment(name, file, client)
        await asyncio.to_thread(self._files.save, file, result, self.weights)
        return False

    async def _segment(self, name: str, file: bytes, client: AsyncClient) -> LabelledImage:
        request = self.requests[name]
        if "everything" in request:
            everything = await client.everything(file, **request["everything"])
            self._check_weights(everything.weights)
            return self._label_everything(name, everything)
        if "shapes" in request:
            size_wh, masks, objects = await segment_shapes(client, file, request, self._max_objects)
        else:
            prompts = [Prompt(**prompt) for prompt in request["prompts"]]
            clip = bool(request.get("clip"))
            masks = await segment_prompts(client, file, prompts, self._max_objects, clip=clip)
            objects = [_prompt_fields(mask, index) for index, mask in enumerate(masks)]
            size_wh = (masks[0].width, masks[0].height)
        for mask in masks:
            self._check_weights(mask.weights)
        return LabelledImage(name, *size_wh, objects)

    def _label_everything(self, name: str, everything: Everything) -> LabelledImage:
        objects = [self._record_fields(record) for record in everything]
        return LabelledImage(name, everything.width, everything.height, objects)

    def _record_fields(self, record: Record) -> dict[str, Any]:
        annotation = coco_fields(record)
        if self._with_points:
            annotation["point"] = record.point_coords[0]
        return annotation

    def _check_weights(self, weights: Weights | None) -> None:
        if self.weights and weights and self.weights.sha256 != weights.sha256:
            reason = "restarted with other weights, or one of its replicas has others"
            raise WeightsChanged(f"the service was {reason}")


def check_prompts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of an image from JSON, for `prompts` of a request.

    Fields that are null are left out. The service checks the values of the others.

    Args:
        value: a list of dicts with fields of `Prompt`, or a single one.

    Raises:
        ValueError: it is something else.
    """
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects:
        raise ValueError(f"expected a list of objects, got {_shortened(value)}")
    checked = []
    for index, entry in enumerate(objects):
        if not isinstance(entry, dict) or not entry or not set(entry) <= set(PROMPT_FIELDS):
            expected = f"expected some of {', '.join(PROMPT_FIELDS)}"
            raise ValueError(f"object {index}: {expected}, got {_shortened(entry)}")
        checked.append({name: field for name, field in entry.items() if field is not None})
    return checked


def _shortened(value: Any) -> str:
    return json.dumps(value, default=str)[:80]


def _prompt_fields(mask: Segmentation, index: int) -> dict[str, Any]:
    """Return the members of the mask of a prompt."""
    annotation = {**coco_fields(mask), "prompt": index}
    if mask.clipped:
        annotation["clipped"] = list(mask.clipped)
    return annotation


async def _run_concurrently(
    items: Iterable[T], work: Callable[[T], Awaitable[None]], concurrency: int
) -> None:
    """Do some work on each item, a few at a time. The first error stops all."""
    remaining = iter(items)  # the workers take from it in turn

    async def worker() -> None:
        for item in remaining:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _is_fatal(error: Exception, client: AsyncClient) -> bool:
    """Return True if the error would occur for every other image too."""
    if isinstance(error, (ServiceUnreachable, NotThisService)):
        # The image may be at fault, such as one at which a proxy cuts the connection.
        try:
            await client.info()
        except MobileSamError:
            return True
    if isinstance(error, CannotWrite):
        return error.errno in FATAL_WRITE_ERRNOS
    return isinstance(error, (WeightsChanged, Unauthorized))
