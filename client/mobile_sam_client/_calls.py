"""API calls, shared by `Client` and `AsyncClient`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from mobile_sam_client import _answers
from mobile_sam_client._bodies import body_with_image_file, body_with_image_id
from mobile_sam_client._errors import ImageNotCached, ServiceUnreachable
from mobile_sam_client._images import ImageInput, Source, load_source
from mobile_sam_client._known import KnownImages
from mobile_sam_client._lines import LineBuffer
from mobile_sam_client._prompts import Prompt, request_fields
from mobile_sam_client._results import Embedding, Everything, ImageResult, Info, Segmentation
from mobile_sam_client._retries import RETRYABLE_STATUSES, parse_retry_after, retry_wait_s
from mobile_sam_client._wire import Response, Wire

logger = logging.getLogger("mobile_sam_client")

RESERVED_FIELDS = ("input_image", "image_id", "progress")
"""Fields of `/everything` set by the client itself."""

ProgressCallback = Callable[[int, int], None]
"""Called with the number of steps done and the total."""
Result = TypeVar("Result", bound=ImageResult)


class Calls:
    """Sends requests to one service and remembers the ids of images it has."""

    def __init__(self, wire: Wire, url: str, retries: int, model_version: int | None = None) -> None:
        """Prepare the calls.

        Args:
            wire: HTTP connection to the service.
            url: URL of the service, for error messages.
            retries: maximum number of retries while the service is busy or unreachable.
            model_version: requested version of the model; None for the newest.
        """
        self._wire, self._url, self._retries = wire, url, retries
        self._version: dict[str, Any] = {} if model_version is None else {"model_version": int(model_version)}
        self._known = KnownImages()

    async def info(self) -> Info:
        """Return the service's version, weights, engine and limits."""
        body = await (await self._send_with_retries("GET", "/info", None)).read()
        with _answers.expect_valid_answer(self._url):
            return _answers.parse_info(body)

    async def embed(self, image: ImageInput) -> Embedding:
        """Encode an image ahead of the first prompt."""
        source = await self._wire.run(lambda: load_source(image))

        async def read(response: Response) -> list[Embedding]:
            body = await response.read()
            with _answers.expect_valid_answer(self._url):
                return [_answers.parse_embedding(body, source.file)]

        (embedding,) = await self._request_for_image("/embed", source, {}, read)
        return embedding

    async def segment(self, image: ImageInput, prompt: Prompt, options: Mapping[str, Any]) -> Segmentation:
        """Segment one object."""
        # Not sent as a list of one prompt, so that errors name `box`, not `prompts[0].box`.
        (segmentation,) = await self._segment(image, {**request_fields(prompt), **options}, 1)
        return segmentation

    async def segment_many(
        self, image: ImageInput, prompts: Sequence[Prompt], options: Mapping[str, Any]
    ) -> list[Segmentation]:
        """Segment several objects, returned in the order of the prompts."""
        prompts = list(prompts)
        if not prompts:
            return []
        fields = {"prompts": [_prompt_fields(index, prompt) for index, prompt in enumerate(prompts)], **options}
        return await self._segment(image, fields, len(prompts))

    async def everything(
        self, image: ImageInput, on_progress: ProgressCallback | None, parameters: Mapping[str, Any]
    ) -> Everything:
        """Segment everything in an image."""
        if reserved := [name for name in RESERVED_FIELDS if name in parameters]:
            raise TypeError(f"everything: {reserved[0]} is set by the client and cannot be a parameter")
        source = await self._wire.run(lambda: load_source(image))

        async def read(response: Response) -> list[Everything]:
            try:
                return [await self._read_everything(response, on_progress)]
            finally:
                await response.close()

        (result,) = await self._request_for_image("/everything", source, {**parameters, "progress": True}, read)
        return result

    async def _segment(self, image: ImageInput, fields: Mapping[str, Any], count: int) -> list[Segmentation]:
        """Segment `count` objects."""
        source = await self._wire.run(lambda: load_source(image))

        async def read(response: Response) -> list[Segmentation]:
            content_type, body = response.headers.get("Content-Type", ""), await response.read()

            def parse() -> list[Segmentation]:
                with _answers.expect_valid_answer(self._url):
                    return _answers.parse_segmentations(content_type, body, count)

            return await self._wire.run(parse)

        return await self._request_for_image("/mobile_sam", source, {**fields, "mask_format": "rle"}, read)

    async def _read_everything(self, response: Response, on_progress: ProgressCallback | None) -> Everything:
        """Read a streamed answer line by line up to the result."""
        request_id, lines = response.headers.get("X-Request-ID"), LineBuffer()

        def parse(line: bytes) -> tuple[int, int, Everything | None]:
            with _answers.expect_valid_answer(self._url):
                return _answers.parse_progress_line(line, request_id)

        while chunk := await response.chunk():
            for line in lines.feed(chunk):
                done, total, result = await self._wire.run(lambda line=line: parse(line))  # type: ignore[misc]
                if on_progress is not None:
                    on_progress(done, total)
                if result is not None:
                    return result
        raise ServiceUnreachable(f"the answer of {self._url} ended before the result")

    async def _request_for_image(
        self,
        path: str,
        source: Source,
        fields: Mapping[str, Any],
        read: Callable[[Response], Awaitable[list[Result]]],
    ) -> list[Result]:
        """Send a request about an image: by its id if known, or by its file if not, or if the id is no longer cached.

        Args:
            path: URL path.
            source: the image.
            fields: the other fields of the request.
            read: reads at least one result from the response.
        """
        fields = {**self._version, **fields}
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

    async def _send_with_retries(self, method: str, path: str, body: bytes | None) -> Response:
        """Send a request, retrying while the service is busy or unreachable, until a response begins."""
        for attempt in range(self._retries + 1):
            retry_after: float | None = None
            try:
                response = await self._wire.send(method, path, body)
                if response.status == 200:
                    return response
                content = await response.read()
                error = _answers.error_from_response(response.status, response.headers, content, self._url + path)
                if response.status not in RETRYABLE_STATUSES:
                    raise error
                retry_after = parse_retry_after(response.headers.get("Retry-After"))
            except ServiceUnreachable as unreachable:
                error = unreachable
            if attempt == self._retries:
                raise error
            seconds = retry_wait_s(attempt, retry_after)
            logger.info("retrying in %.1f s (%d of %d): %s", seconds, attempt + 1, self._retries, error)
            await self._wire.sleep(seconds)
        raise AssertionError("unreachable: the last attempt returns or raises")


def _prompt_fields(index: int, prompt: Prompt) -> dict[str, Any]:
    """Return the request fields of one prompt; errors name it by its index."""
    if not isinstance(prompt, Prompt):
        raise TypeError(f"prompts[{index}]: expected a Prompt, got {type(prompt).__name__}")
    try:
        return request_fields(prompt)
    except ValueError as error:
        raise ValueError(f"prompts[{index}].{error}") from None
