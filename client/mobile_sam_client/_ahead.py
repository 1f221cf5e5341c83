"""Images that the service encodes in the background."""

from __future__ import annotations

import base64
import contextlib
import inspect
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

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


async def embed_ahead(
    client: BaseClient, images: Iterable[T], load: Callable[[T], Any]
) -> AsyncGenerator[tuple[T, str | Exception], None]:
    """Yield each image with its id or its error, as `AsyncClient.embed_ahead`."""
    sent: deque[tuple[T, str, bytes, str]] = deque()  # image, SHA-256 of its file, request, job
    try:
        for image in images:
            try:
                loaded = await client._wire.run(load, image)
                source, scaling = await client._source(await loaded if inspect.isawaitable(loaded) else loaded)
                file = base64.b64encode(await client._file_to_send(source, scaling)).decode()
                body = json.dumps({"images": [file], "model_version": client.model_version}).encode()
                sent.append((image, source.sha256, body, await _queue(client, body)))
            except Exception as error:
                if isinstance(error, errors.MobileSamError) and not isinstance(error, UNUSABLE):
                    raise
                yield image, error
            while len(sent) == MAX_SENT:
                yield await _result(client, *sent[0])
                sent.popleft()
        while sent:
            yield await _result(client, *sent[0])
            sent.popleft()
    finally:
        with contextlib.suppress(errors.MobileSamError):
            for *_, job in sent:
                await client._send("DELETE", f"/embed/{job}")


async def _queue(client: BaseClient, body: bytes) -> str:
    return str(await _insist(client, lambda answer: json.loads(answer)["job"], "POST", "/embed", body))


async def _result(client: BaseClient, image: T, sha256: str, body: bytes, job: str) -> tuple[T, str | Exception]:
    while True:
        try:
            found = await _insist(client, lambda answer: json.loads(answer)["images"][0], "GET", f"/embed/{job}")
        except errors.Problem as error:
            if error.status != 404:
                raise
            job = await _queue(client, body)  # the service has lost its jobs
            continue
        if found["state"] == "done":
            client._known_id(sha256, image_id := str(found["image_id"]))
            return image, image_id
        if found["state"] != "queued":
            return image, errors.problem_from_document(found.get("problem", CANCELLED))
        await client._wire.sleep(POLL_S)


async def _insist(
    client: BaseClient, parser: Callable[[bytes], Any], method: str, path: str, body: bytes | None = None
) -> Any:
    """Return the answer to a request, which is repeated while the service restarts or its queue is full."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await client._parse(parser, await client._wire.read(await client._send(method, path, body)))
        except BUSY:
            if time.monotonic() > deadline:
                raise
        await client._wire.sleep(POLL_S)
