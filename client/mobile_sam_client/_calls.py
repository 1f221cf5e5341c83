"""The client's calls, written once for `Client` and `AsyncClient`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from mobile_sam_client import _answers
from mobile_sam_client._bodies import body_by_file, body_by_id
from mobile_sam_client._errors import ImageNotCached, ServiceUnreachable
from mobile_sam_client._images import ImageInput, Source, source_of
from mobile_sam_client._known import KnownImages
from mobile_sam_client._lines import Lines
from mobile_sam_client._prompts import Prompt, fields_of
from mobile_sam_client._results import Embedding, Everything, Info, OfImage, Segmentation
from mobile_sam_client._retries import BUSY, retry_after, seconds_to_wait
from mobile_sam_client._wire import Answer, Wire

logger = logging.getLogger("mobile_sam_client")

OWN_FIELDS = ("input_image", "image_id", "progress")
"""Fields of `/everything` that are the client's to fill in."""

Progress = Callable[[int, int], None]
"""Is told of work done and work in all."""
Found = TypeVar("Found", bound=OfImage)


class Calls:
    """Asks one service, and remembers which images it knows."""

    def __init__(self, wire: Wire, url: str, retries: int, model_version: int | None = None) -> None:
        """Make the calls.

        Args:
            wire: to the service.
            url: of the service, for errors.
            retries: how often to ask again where the service is busy or cannot be reached.
            model_version: which is asked; None: the newest.
        """
        self._wire, self._url, self._retries = wire, url, retries
        self._version: dict[str, Any] = {} if model_version is None else {"model_version": int(model_version)}
        self._known = KnownImages()

    async def info(self) -> Info:
        """What the service says of itself."""
        body = await (await self._send("GET", "/info", None)).read()
        with _answers.understanding(self._url):
            return _answers.info_of(body)

    async def embed(self, image: ImageInput) -> Embedding:
        """Have an image encoded."""
        source = await self._wire.work(lambda: source_of(image))

        async def read(answer: Answer) -> list[Embedding]:
            body = await answer.read()
            with _answers.understanding(self._url):
                return [_answers.embedding_of(body, source.file)]

        (embedding,) = await self._ask("/embed", source, {}, read)
        return embedding

    async def segment(self, image: ImageInput, prompt: Prompt, options: Mapping[str, Any]) -> Segmentation:
        """The object of a prompt."""
        # Not as a list of one: errors name the fields as the caller does.
        (found,) = await self._segment(image, {**fields_of(prompt), **options}, 1)
        return found

    async def segment_many(
        self, image: ImageInput, prompts: Sequence[Prompt], options: Mapping[str, Any]
    ) -> list[Segmentation]:
        """The objects of prompts, in their order."""
        prompts = list(prompts)
        if not prompts:
            return []
        fields = {"prompts": [_fields_of(index, prompt) for index, prompt in enumerate(prompts)], **options}
        return await self._segment(image, fields, len(prompts))

    async def everything(
        self, image: ImageInput, on_progress: Progress | None, parameters: Mapping[str, Any]
    ) -> Everything:
        """All objects of an image."""
        if own := [name for name in OWN_FIELDS if name in parameters]:
            raise TypeError(f"everything: expected parameters of the search, got {own[0]}, which the client fills in")
        source = await self._wire.work(lambda: source_of(image))

        async def read(answer: Answer) -> list[Everything]:
            try:
                return [await self._last(answer, on_progress)]
            finally:
                await answer.close()

        (found,) = await self._ask("/everything", source, {**parameters, "progress": True}, read)
        return found

    async def _segment(self, image: ImageInput, fields: Mapping[str, Any], count: int) -> list[Segmentation]:
        """Ask for `count` objects."""
        source = await self._wire.work(lambda: source_of(image))

        async def read(answer: Answer) -> list[Segmentation]:
            content_type, body = answer.headers.get("Content-Type", ""), await answer.read()

            def parse() -> list[Segmentation]:
                with _answers.understanding(self._url):
                    return _answers.segmentations_of(content_type, body, count)

            return await self._wire.work(parse)

        return await self._ask("/mobile_sam", source, {**fields, "mask_format": "rle"}, read)

    async def _last(self, answer: Answer, on_progress: Progress | None) -> Everything:
        """Read the lines of an answer up to the result."""
        request_id, lines = answer.headers.get("X-Request-ID"), Lines()

        def parse(line: bytes) -> tuple[int, int, Everything | None]:
            with _answers.understanding(self._url):
                return _answers.step_of(line, request_id)

        while chunk := await answer.chunk():
            for line in lines.feed(chunk):
                done, total, result = await self._wire.work(lambda line=line: parse(line))  # type: ignore[misc]
                if on_progress is not None:
                    on_progress(done, total)
                if result is not None:
                    return result
        raise ServiceUnreachable(f"the answer of {self._url} ended before the result")

    async def _ask(
        self,
        path: str,
        source: Source,
        fields: Mapping[str, Any],
        read: Callable[[Answer], Awaitable[list[Found]]],
    ) -> list[Found]:
        """Ask about an image: by its id where the service should know it, and else, or if it does not, by its file.

        Args:
            path: of the request.
            source: the image.
            fields: of the request, beside the image.
            read: from an answer to results, of which there is at least one.
        """
        fields = {**self._version, **fields}
        image_id = source.image_id or self._known.id_of(source.sha256)
        if image_id is not None:
            try:
                return await read(await self._send("POST", path, body_by_id(image_id, fields)))
            except ImageNotCached:
                logger.info("the service has forgotten image %s: sending it again", image_id)
        body = await self._wire.work(lambda: body_by_file(source.file, fields))
        results = await read(await self._send("POST", path, body))
        if source.sha256:
            self._known.remember(source.sha256, results[0].image_id)
        return results

    async def _send(self, method: str, path: str, body: bytes | None) -> Answer:
        """Send a request, again where that may help, until the answer to it begins."""
        for attempt in range(self._retries + 1):
            seconds: float | None = None
            try:
                answer = await self._wire.send(method, path, body)
                if answer.status == 200:
                    return answer
                error = _answers.refusal(answer.status, answer.headers, await answer.read(), self._url + path)
                if answer.status not in BUSY:
                    raise error
                seconds = retry_after(answer.headers.get("Retry-After"))
            except ServiceUnreachable as unreachable:
                error = unreachable
            if attempt == self._retries:
                raise error
            seconds = seconds_to_wait(attempt, seconds)
            logger.info("trying again in %.1f s (%d of %d): %s", seconds, attempt + 1, self._retries, error)
            await self._wire.wait(seconds)
        raise AssertionError("there is always a last attempt")


def _fields_of(index: int, prompt: Prompt) -> dict[str, Any]:
    """The members of one of several prompts."""
    if not isinstance(prompt, Prompt):
        raise TypeError(f"prompts[{index}]: expected a Prompt, got {type(prompt).__name__}")
    try:
        return fields_of(prompt)
    except ValueError as error:
        raise ValueError(f"prompts[{index}].{error}") from None
