"""The calls of the API as coroutines: `AsyncClient` inherits them, and `Client` runs them."""

import functools
import logging
import numbers
import random
import threading
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import httpx
import numpy as np
import numpy.typing as npt

from mobile_sam_client import _answers
from mobile_sam_client._errors import ImageNotCached, ServiceUnreachable
from mobile_sam_client._images import ImageInput, Source, displayed_pixels, load_source
from mobile_sam_client._prompts import (
    Box,
    Labels,
    Points,
    Prompt,
    body_with_image_file,
    body_with_image_id,
    request_fields,
)
from mobile_sam_client._results import Embedding, Everything, ImageResult, Info, Photo, Segmentation
from mobile_sam_client._wire import Wire

logger = logging.getLogger("mobile_sam_client")

RETRYABLE_STATUSES = (429, 503)
"""Statuses worth retrying. Not 504: the server has already done the work once."""
MAX_RETRY_WAIT_S = 30.0
"""Upper bound, also for the wait that the service asks for."""
FIRST_RETRY_WAIT_S = 0.2
"""Longest wait before the first retry without `Retry-After`; doubled for each further retry."""
MAX_KNOWN_IMAGES = 4096

PictureStyle = Literal["overlay", "cutout", "none"]
"""`overlay`: objects tinted and outlined; `cutout`: RGBA, transparent outside the objects; `none`: no picture."""
ProgressCallback = Callable[[int, int], None]
"""Called with the number of steps done and the total."""
T = TypeVar("T")
Result = TypeVar("Result", bound=ImageResult)


class Calls:
    """The calls of a client to one service."""

    def __init__(self, http: httpx.Client | httpx.AsyncClient, retries: int, model_version: int | None) -> None:
        _check_integer("retries", retries, 0)
        if model_version is not None:
            _check_integer("model_version", model_version, 1, ", or None")
        self.url = str(http.base_url).rstrip("/")
        """URL of the service."""
        self._wire, self._retries = Wire(http), retries
        self._model_version = None if model_version is None else int(model_version)
        self._known = KnownImages()

    async def info(self) -> Info:
        """Return the service's version, weights, engine and limits. Needs no API key."""
        body = await self._wire.read(await self._send_with_retries("GET", "/info", None))
        return await self._parse(lambda: _answers.parse_info(body))

    async def embed(self, image: ImageInput) -> Embedding:
        """Encode an image ahead of the first prompt. Pass the result as `image` to later calls."""
        source = await self._wire.run(lambda: load_source(image))

        async def read(response: httpx.Response) -> list[Embedding]:
            body = await self._wire.read(response)
            return [await self._parse(lambda: _answers.parse_embedding(body, source.file))]

        (embedding,) = await self._request_for_image("/embed", source, {}, read)
        return embedding

    async def segment(
        self,
        image: ImageInput,
        *,
        pos_coords: Points | None = None,
        labels: Labels | None = None,
        neg_coords: Points | None = None,
        box: Box | None = None,
        mask_input: npt.NDArray[np.floating[Any]] | None = None,
        multimask_output: bool = False,
        segmented_image: PictureStyle = "overlay",
        low_res_mask: bool = False,
        mask_threshold: float | None = None,
        min_mask_region_area: int | None = None,
    ) -> Segmentation:
        """Segment an object given by points, a box, or both.

        Args:
            image: the image.
            pos_coords: one point (x, y) or (N, 2) points, x then y, in pixels of the displayed image.
            labels: (N,) labels of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right; default 1.
            neg_coords: one point or (N, 2) points outside the object.
            box: x0, y0, x1, y1 around the object.
            mask_input: (256, 256) logits, the `low_res_mask` of an earlier result, to refine it.
            multimask_output: True to compute three candidate masks; the best is returned, with all in `candidates`.
            segmented_image: style of the picture, `overlay`, `cutout` or `none`.
            low_res_mask: True to return the mask's logits as `low_res_mask`.
            mask_threshold: logit above which a pixel belongs to the mask, -20 to 20; default 0.
            min_mask_region_area: holes and islands with fewer pixels than this are filled and removed; default 0.
        """
        # Not sent as a list of one prompt, so that errors name `box`, not `prompts[0].box`.
        prompt = request_fields(Prompt(pos_coords, labels, neg_coords, box, mask_input))
        (segmentation,) = await self._segment(
            image,
            1,
            **prompt,
            multimask_output=multimask_output,
            segmented_image=segmented_image,
            low_res_mask=low_res_mask,
            mask_threshold=mask_threshold,
            min_mask_region_area=min_mask_region_area,
        )
        return segmentation

    async def segment_many(
        self,
        image: ImageInput,
        prompts: Sequence[Prompt],
        *,
        multimask_output: bool = False,
        segmented_image: PictureStyle = "none",
        low_res_mask: bool = False,
        mask_threshold: float | None = None,
        min_mask_region_area: int | None = None,
    ) -> list[Segmentation]:
        """Segment several objects in one request, with one result per prompt in the same order.

        All results share one picture of all objects. `segment` describes the other arguments. `Info.max_objects` limits
        the number of prompts.
        """
        prompts = list(prompts)
        if not prompts:
            return []
        return await self._segment(
            image,
            len(prompts),
            prompts=[_prompt_fields(index, prompt) for index, prompt in enumerate(prompts)],
            multimask_output=multimask_output,
            segmented_image=segmented_image,
            low_res_mask=low_res_mask,
            mask_threshold=mask_threshold,
            min_mask_region_area=min_mask_region_area,
        )

    async def everything(
        self,
        image: ImageInput,
        *,
        on_progress: ProgressCallback | None = None,
        points_per_side: int | None = None,
        pred_iou_thresh: float | None = None,
        stability_score_thresh: float | None = None,
        stability_score_offset: float | None = None,
        box_nms_thresh: float | None = None,
        crop_n_layers: int | None = None,
        crop_nms_thresh: float | None = None,
        crop_overlap_ratio: float | None = None,
        crop_n_points_downscale_factor: int | None = None,
        min_mask_region_area: int | None = None,
    ) -> Everything:
        """Segment everything in an image, with the parameters of Segment Anything's automatic mask generator.

        `timeout` applies to each step, not to the whole call.

        Args:
            image: the image.
            on_progress: called after each step with the number of steps done and the total.
            points_per_side: points along each side of the grid, 1 to 64; default 32.
            pred_iou_thresh: minimum score of a mask; the default depends on the weights, 0.88 for the official ones.
            stability_score_thresh: minimum `stability_score` of a mask; the default depends on the weights, 0.95 for
                the official ones.
            stability_score_offset: how far the threshold is raised and lowered for `stability_score`, in logits;
                default 1.
            box_nms_thresh: box IoU above which the mask with the lower score is dropped as a duplicate; default 0.7.
            crop_n_layers: layers of enlarged crops to segment as well, 0 to 3; layer i has 4^i crops; default 0.
            crop_nms_thresh: the same as `box_nms_thresh` between crops; default 0.7.
            crop_overlap_ratio: overlap of the crops in layer 1 as a fraction of the image's shorter side; default 0.34.
            crop_n_points_downscale_factor: `points_per_side` is divided by this in each further layer; default 1.
            min_mask_region_area: holes and islands with fewer pixels than this are filled and removed; default 0.
        """
        parameters = {
            "points_per_side": points_per_side,
            "pred_iou_thresh": pred_iou_thresh,
            "stability_score_thresh": stability_score_thresh,
            "stability_score_offset": stability_score_offset,
            "box_nms_thresh": box_nms_thresh,
            "crop_n_layers": crop_n_layers,
            "crop_nms_thresh": crop_nms_thresh,
            "crop_overlap_ratio": crop_overlap_ratio,
            "crop_n_points_downscale_factor": crop_n_points_downscale_factor,
            "min_mask_region_area": min_mask_region_area,
        }
        source = await self._wire.run(lambda: load_source(image))
        photo = functools.partial(displayed_pixels, image)

        async def read(response: httpx.Response) -> list[Everything]:
            try:
                return [await self._read_everything(response, on_progress, photo)]
            finally:
                await self._wire.close(response)

        (result,) = await self._request_for_image("/everything", source, {**parameters, "progress": True}, read)
        return result

    async def _segment(self, image: ImageInput, count: int, **fields: Any) -> list[Segmentation]:
        source = await self._wire.run(lambda: load_source(image))
        photo = functools.partial(displayed_pixels, image)

        async def read(response: httpx.Response) -> list[Segmentation]:
            content_type, body = response.headers.get("Content-Type", ""), await self._wire.read(response)
            return await self._parse(lambda: _answers.parse_segmentations(content_type, body, count, photo))

        return await self._request_for_image("/mobile_sam", source, {**fields, "mask_format": "rle"}, read)

    async def _read_everything(
        self, response: httpx.Response, on_progress: ProgressCallback | None, photo: Photo
    ) -> Everything:
        """Read a streamed answer line by line up to the result."""
        request_id = response.headers.get("X-Request-ID")
        async for line in lines_of(self._wire.chunks(response)):
            done, total, result = await self._parse(
                lambda line=line: _answers.parse_progress_line(line, request_id, photo)  # type: ignore[misc]
            )
            if on_progress is not None:
                on_progress(done, total)
            if result is not None:
                return result
        raise ServiceUnreachable(f"the answer of {self.url} ended before the result")

    async def _parse(self, parser: Callable[[], T]) -> T:
        """Parse an answer; malformed ones raise `NotThisService`."""

        def parse() -> T:
            with _answers.expect_valid_answer(self.url):
                return parser()

        return await self._wire.run(parse)

    async def _request_for_image(
        self,
        path: str,
        source: Source,
        fields: Mapping[str, Any],
        read: Callable[[httpx.Response], Awaitable[list[Result]]],
    ) -> list[Result]:
        """Send a request about an image: by its id if known, or by its file if not, or if the id is no longer cached.

        Args:
            path: URL path.
            source: the image.
            fields: the other fields of the request; those that are None are left out.
            read: reads at least one result from the response.
        """
        given = {"model_version": self._model_version, **fields}
        fields = {name: value for name, value in given.items() if value is not None}
        image_id = source.image_id or self._known.id_of(source.sha256)
        if image_id is not None:
            try:
                return await read(await self._send_with_retries("POST", path, body_with_image_id(image_id, fields)))
            except ImageNotCached:
                logger.info("image %s is no longer cached by the service: sending it again", image_id)
        body = await self._wire.run(lambda: body_with_image_file(source.file, fields))
        results = await read(await self._send_with_retries("POST", path, body))
        if source.sha256:
            self._known.remember(source.sha256, results[0].image_id)
        return results

    async def _send_with_retries(self, method: str, path: str, body: bytes | None) -> httpx.Response:
        """Send a request, retrying while the service is busy or unreachable, until a response begins."""
        for attempt in range(self._retries + 1):
            retry_after: float | None = None
            try:
                response = await self._wire.send(method, path, body)
                if response.status_code == 200:
                    return response
                error = _answers.error_from_response(response, await self._wire.read(response), self.url + path)
                if response.status_code not in RETRYABLE_STATUSES:
                    raise error
                retry_after = _answers.parse_retry_after(response.headers.get("Retry-After"))
            except ServiceUnreachable as unreachable:
                error = unreachable
            if attempt == self._retries:
                raise error
            seconds = retry_wait_s(attempt, retry_after)
            logger.info("retrying in %.1f s (%d of %d): %s", seconds, attempt + 1, self._retries, error)
            await self._wire.sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")


class KnownImages:
    """Thread-safe LRU map from a file's SHA-256 to its image id.

    Image ids are scoped to an API key, so every client has its own map.
    """

    def __init__(self, capacity: int = MAX_KNOWN_IMAGES) -> None:
        self._capacity = capacity
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def id_of(self, sha256: str) -> str | None:
        with self._lock:
            if sha256 in self._ids:
                self._ids.move_to_end(sha256)
            return self._ids.get(sha256)

    def remember(self, sha256: str, image_id: str) -> None:
        with self._lock:
            self._ids[sha256] = image_id
            self._ids.move_to_end(sha256)
            while len(self._ids) > self._capacity:
                self._ids.popitem(last=False)


async def lines_of(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Split chunks into non-empty lines. Only `\\n` ends a line."""
    partial: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        partial.append(first)
        if others:
            for line in (b"".join(partial), *others[:-1]):
                if line.strip():
                    yield line
            partial = others[-1:]


def retry_wait_s(attempt: int, retry_after: float | None) -> float:
    """Return the seconds to wait before the next retry: those that the service asked for, or a backoff."""
    if retry_after is not None:
        return min(retry_after, MAX_RETRY_WAIT_S)
    longest = min(FIRST_RETRY_WAIT_S * 2**attempt, MAX_RETRY_WAIT_S)
    return random.uniform(longest / 2, longest)  # noqa: S311 (jitter, not cryptography)


def _check_integer(name: str, value: int, minimum: int, alternative: str = "") -> None:
    if not isinstance(value, numbers.Integral) or value < minimum:
        raise ValueError(f"{name}: expected an integer of at least {minimum}{alternative}, got {value!r}")


def _prompt_fields(index: int, prompt: Prompt) -> dict[str, Any]:
    """Return the request fields of one prompt; errors name it by its index."""
    if not isinstance(prompt, Prompt):
        raise TypeError(f"prompts[{index}]: expected a Prompt, got {type(prompt).__name__}")
    try:
        return request_fields(prompt)
    except ValueError as error:
        raise ValueError(f"prompts[{index}].{error}") from None
