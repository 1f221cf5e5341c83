"""Images that the service encodes in the background."""

from __future__ import annotations

import base64
import contextlib
import inspect
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mobile_sam_client import _errors as errors

if TYPE_CHECKING:
    from mobile_sam_client._base import BaseClient

T = TypeVar("T")

MAX_SENT = 16
"""Images that are queued at a time: enough that the service never waits for the next one."""
POLL_S, PATIENCE_S = 0.5, 300.0
"""Time between two questions, and the longest wait for a restarting service or a full queue."""
BUSY = (errors.ServiceUnreachable, errors.ServiceTimeout, errors.TooManyRequests, errors.Unavailable)
UNUSABLE = (errors.InvalidImage, errors.InvalidRequest, errors.BodyTooLarge)
CANCELLED = {"status": 409, "title": "Cancelled", "detail": "the image was taken out of the queue"}


@dataclass
class _Sent(Generic[T]):
    image: T
    sha256: str
    """SHA-256 of the image's file."""
    image_id: str
    """SHA-256 of the file that is sent."""
    body: bytes
    job: str = ""


async def embed_in_background(
    client: BaseClient, images: Iterable[T], load: Callable[[T], Any]
) -> AsyncGenerator[tuple[T, str | Exception], None]:
    """Yield each image with its id or its error, as `AsyncClient.embed_in_background`."""
    queue: deque[_Sent[T]] = deque()
    try:
        for image in images:
            try:
                loaded = await client._wire.run(load, image)
                source, scaling = await client._source(await loaded if inspect.isawaitable(loaded) else loaded)
                file = await client._file_to_send(source, scaling)
                texts = [base64.b64encode(file.file).decode()]
                body = json.dumps({"images": texts, "model_version": client.model_version}).encode()
                await _queue(client, sent := _Sent(image, source.sha256, file.sha256, body))
                queue.append(sent)
            except Exception as error:
                if isinstance(error, errors.MobileSamError) and not isinstance(error, UNUSABLE):
                    raise
                yield image, error
            while len(queue) == MAX_SENT:
                yield await _result(client, queue[0])
                queue.popleft()
        while queue:
            yield await _result(client, queue[0])
            queue.popleft()
    finally:
        with contextlib.suppress(errors.MobileSamError):
            for sent in queue:
                await client._send("DELETE", f"/embed/{sent.job}", image_id=sent.image_id)


async def _queue(client: BaseClient, sent: _Sent[T]) -> None:
    request = "POST", "/embed", sent.body, sent.image_id
    sent.job = str(await _insist(client, lambda answer: json.loads(answer)["job"], *request))


async def _result(client: BaseClient, sent: _Sent[T]) -> tuple[T, str | Exception]:
    while True:
        request = "GET", f"/embed/{sent.job}", None, sent.image_id
        try:
            found = await _insist(client, lambda answer: json.loads(answer)["images"][0], *request)
        except errors.Problem as error:
            if error.status != 404:
                raise
            await _queue(client, sent)  # the service has lost its jobs
            continue
        if found["state"] == "done":
            client._known_id(sent.sha256, sent.image_id)
            return sent.image, sent.image_id
        if found["state"] != "queued":
            return sent.image, errors.problem_from_document(found.get("problem", CANCELLED))
        await client._wire.sleep(POLL_S)


async def _insist(client: BaseClient, parser: Callable[[bytes], Any], *request: Any) -> Any:
    """Return the answer to a request, which is repeated while the service restarts or its queue is full."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await client._parse(parser, await client._wire.read(await client._send(*request)))
        except BUSY:
            if time.monotonic() > deadline:
                raise
        await client._wire.sleep(POLL_S)
