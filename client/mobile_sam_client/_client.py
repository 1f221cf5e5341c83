"""The blocking and the asyncio client.

The calls are coroutines of `AsyncClient`, and `Client` runs them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import httpx
import numpy as np
import numpy.typing as npt

from mobile_sam_client import _answers
from mobile_sam_client._background import embed_ahead
from mobile_sam_client._base import BaseClient
from mobile_sam_client._errors import ServiceUnreachable
from mobile_sam_client._images import ImageFile, ImageInput, displayed_pixels, load_source
from mobile_sam_client._options import EverythingOptions, MaskOptions, PictureStyle, check_options
from mobile_sam_client._prompts import Box, Labels, Points, Prompt, Region, request_fields
from mobile_sam_client._results import Embedding, Everything, Segmentation
from mobile_sam_client._service_info import Info
from mobile_sam_client._shapes import segment_shapes, with_masks
from mobile_sam_client._wire import lines_of, run_blocking

if TYPE_CHECKING:
    from supervision import DetectionDataset
    from typing_extensions import Unpack

P = ParamSpec("P")
T = TypeVar("T")
ProgressCallback = Callable[[int, int], None]
"""Called with the number of steps done and the total."""


class AsyncClient(BaseClient):
    """Asyncio version of `Client`, with the same calls as coroutines. It belongs to one event loop.

        async with AsyncClient() as client:
            found = await client.segment("photo.jpg", pos_coords=(320, 240))

    Blocking work, such as encoding a PNG, runs in threads.
    """

    _http_type = httpx.AsyncClient
    _http: httpx.AsyncClient

    async def info(self) -> Info:
        """Return the service's version, weights, engine and limits. Needs no API key.

        client.info().max_image_pixels
        """
        return await self._info()

    async def embed(self, image: ImageInput, *, region: Region | None = None) -> Embedding:
        """Encode an image, or a region of it, ahead of the first prompt.

        Pass the result as `image` to later calls:

            photo = client.embed("photo.jpg")
            client.segment(photo, pos_coords=(320, 240))
        """
        return await self._embed(image, region)

    def embed_ahead(
        self, images: Iterable[T], *, load: Callable[[T], Any] = lambda image: image
    ) -> AsyncGenerator[tuple[T, str | Exception], None]:
        """Encode images in the background, and yield each with its id, or with its error.

        The service encodes them while no caller waits:

            for path, found in client.embed_ahead(Path("photos").glob("*.jpg")):
                print(path, found)

        Later calls with an image send its id only. Errors that concern one image are yielded,
        others are raised. Images that are still queued when the iteration ends early are cancelled.
        The service may restart meanwhile.

        Args:
            images: images, or what `load` takes.
            load: returns an image, or an awaitable of one; its errors are yielded.
        """
        return embed_ahead(self, images, load)

    async def segment(
        self,
        image: ImageInput,
        *,
        pos_coords: Points | None = None,
        labels: Labels | None = None,
        neg_coords: Points | None = None,
        box: Box | None = None,
        mask_input: npt.NDArray[np.floating[Any]] | None = None,
        segmented_image: PictureStyle | None = None,
        **options: Unpack[MaskOptions],
    ) -> Segmentation:
        """Segment an object given by points, a box, or both.

            boat = client.segment("photo.jpg", pos_coords=(390, 660), multimask_output=True)
            boat.mask  # (H, W) bool

        `Prompt` describes points, labels, box and mask, `MaskOptions` the options.
        `segmented_image` is the style of the picture: `overlay`, `cutout` or `none`; by default
        `overlay`, for a client with `local` `none`.
        """
        # Not sent as a list of one prompt, so that errors name `box`, not `prompts[0].box`.
        prompt = request_fields(Prompt(pos_coords, labels, neg_coords, box, mask_input))
        check_options("segment", options, MaskOptions)
        # Only the service draws: a picture by default would keep a client with `local` asking it.
        default_style = "none" if self._local else "overlay"
        style = segmented_image or default_style
        (segmentation,) = await self._segment(image, 1, **prompt, segmented_image=style, **options)
        return segmentation

    async def segment_many(
        self,
        image: ImageInput,
        prompts: Sequence[Prompt],
        *,
        segmented_image: PictureStyle = "none",
        **options: Unpack[MaskOptions],
    ) -> list[Segmentation]:
        """Segment several objects in one request, with one result per prompt in the same order.

            prompts = [Prompt(pos_coords=(390, 660)), Prompt(box=(40, 30, 560, 410))]
            boat, tree = client.segment_many("photo.jpg", prompts)

        All results share one picture of all objects. The options are as for `segment`.
        `Info.max_objects` limits the number of prompts.
        """
        check_options("segment_many", options, MaskOptions)
        objects = [
            request_fields(prompt, f"prompts[{index}]") for index, prompt in enumerate(prompts)
        ]
        if not objects:
            return []
        return await self._segment(
            image, len(objects), prompts=objects, segmented_image=segmented_image, **options
        )

    async def everything(
        self,
        image: ImageInput,
        *,
        region: Region | None = None,
        on_progress: ProgressCallback | None = None,
        **options: Unpack[EverythingOptions],
    ) -> Everything:
        """Segment everything in an image, or a region of it.

            for record in client.everything("photo.jpg", points_per_side=8):
                print(record.score, record.box_xyxy)

        `EverythingOptions` describes the options. `on_progress` is called after each step with the
        number of steps done and the total. `timeout` applies to each step, not to the whole call.
        """
        check_options("everything", options, EverythingOptions)
        load_pixels = functools.partial(displayed_pixels, image)

        async def read(response: httpx.Response, _: ImageFile) -> list[Everything]:
            request_id = response.headers.get("X-Request-ID")
            try:
                async for line in lines_of(self._wire.chunks(response)):
                    done, total, result = await self._parse(
                        _answers.parse_progress_line, line, request_id, load_pixels
                    )
                    if on_progress is not None:
                        on_progress(done, total)
                    if result is not None:
                        return [result]
            finally:
                await self._wire.close(response)
            raise ServiceUnreachable(f"the answer of {self.url} ended before the result")

        fields = {**options, "region": region, "progress": True}
        (result,) = await self._ask("/everything", image, fields, read)
        return result

    async def masks_for(self, dataset: DetectionDataset) -> DetectionDataset:
        """Return a copy of a detection data set of supervision, with a mask for each box.

            dataset = supervision.DetectionDataset.from_yolo("images", "labels", "data.yaml")
            client.masks_for(dataset).as_coco(annotations_path="masks.json")

        `data` of the detections gets `mask_score`, `box_iou` (of the mask's box and the given one)
        and `note`: a remark, or why a mask is empty. Images are read from their paths, one after
        another.
        """
        info = await self._info()
        annotations = {}
        for path, detections in dataset.annotations.items():
            source = await self._wire.run(load_source, path)
            request = {"shapes": detections.xyxy.tolist(), "relative": False, "size_wh": None}
            size_wh, _, fields = await segment_shapes(self, source.file, request, info.max_objects)
            annotations[path] = with_masks(detections, size_wh, fields)
        return type(dataset)(
            classes=dataset.classes, images=dataset.image_paths, annotations=annotations
        )

    async def aclose(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _blocking(
    call: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    """Return the blocking version of a call, with its parameters and docstring."""
    call.__qualname__ = call.__name__  # Python's errors about arguments have it, for both clients

    @functools.wraps(call)
    def method(self: Client, /, *arguments: P.args, **named: P.kwargs) -> T:
        # The coroutines use only what both clients inherit.
        return run_blocking(call(cast(AsyncClient, self), *arguments, **named))

    method.__qualname__ = f"Client.{call.__name__}"
    return method


def _blocking_iterator(
    call: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Generator[T, None, None]]:
    """Return the blocking version of an iterator, as `_blocking`."""

    @functools.wraps(call)
    def method(self: Client, /, *arguments: P.args, **named: P.kwargs) -> Generator[T, None, None]:
        results = call(cast(AsyncClient, self), *arguments, **named)
        try:
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    yield run_blocking(results.__anext__())
        finally:
            run_blocking(results.aclose())

    return method


class Client(BaseClient):
    """Blocking client of a MobileSAM service. It is thread-safe.

        with Client("http://127.0.0.1:3000") as client:
            found = client.segment("photo.jpg", pos_coords=(320, 240))

    The first call on an image uploads it; later calls send only its id. The client uploads the
    image again if the service no longer has it. While the service is busy (429, 503) or
    unreachable, requests are retried after the time given by `Retry-After` (at most 30 s), or with
    exponential backoff from 0.2 s.

    Calls raise `MobileSamError`. Invalid arguments raise `ValueError`, `TypeError` or `OSError`,
    and nothing is sent.

    See `ImageInput` for the accepted images. Coordinates are pixels of the displayed image: EXIF
    orientation is applied to files, but not to PIL images and arrays.
    """

    _http_type = httpx.Client
    _http: httpx.Client

    info = _blocking(AsyncClient.info)
    embed = _blocking(AsyncClient.embed)
    embed_ahead = _blocking_iterator(AsyncClient.embed_ahead)
    segment = _blocking(AsyncClient.segment)
    segment_many = _blocking(AsyncClient.segment_many)
    everything = _blocking(AsyncClient.everything)
    masks_for = _blocking(AsyncClient.masks_for)

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
