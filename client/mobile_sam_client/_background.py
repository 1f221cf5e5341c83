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

MAX_QUEUED = 16
"""Images that are queued at a time: enough that the service never waits for the next one."""
POLL_S = 0.5
"""Time between two requests for the state of an image."""
MAX_RETRY_S = 300.0
"""Longest wait for a restarting service or a full queue."""
RETRYABLE = (
    errors.ServiceUnreachable,
    errors.ServiceTimeout,
    errors.TooManyRequests,
    errors.Unavailable,
)
IMAGE_ERRORS = (errors.InvalidImage, errors.InvalidRequest, errors.BodyTooLarge)
"""Errors of the service that concern one image."""
CANCELLED = {
    "status": 409,
    "title": "Cancelled",
    "detail": "the image was taken out of the queue",
}


@dataclass
class _QueuedUpload(Generic[T]):
    """An image in the service's queue."""

    image: T
    """What the caller has passed."""
    sha256: str
    """SHA-256 of the image's file."""
    image_id: str
    """SHA-256 of the file that is sent."""
    body: bytes
    """Request that queues the image."""
    job: str = ""
    """Name of the service's job."""


async def embed_ahead(
    client: BaseClient, images: Iterable[T], load: Callable[[T], Any]
) -> AsyncGenerator[tuple[T, str | Exception], None]:
    """Yield each image with its id or its error, as `AsyncClient.embed_ahead`."""
    queue: deque[_QueuedUpload[T]] = deque()
    try:
        for image in images:
            try:
                upload = await _prepare(client, image, load)
                await _enqueue(client, upload)
                queue.append(upload)
            except Exception as error:
                if isinstance(error, errors.MobileSamError) and not isinstance(error, IMAGE_ERRORS):
                    raise
                yield image, error
            while len(queue) == MAX_QUEUED:
                yield await _wait_for(client, queue[0])
                queue.popleft()
        while queue:
            yield await _wait_for(client, queue[0])
            queue.popleft()
    finally:
        # Empty unless the iteration ends early.
        with contextlib.suppress(errors.MobileSamError):
            for upload in queue:
                await client._send("DELETE", f"/embed/{upload.job}", image_id=upload.image_id)


async def _prepare(client: BaseClient, image: T, load: Callable[[T], Any]) -> _QueuedUpload[T]:
    """Load an image and write its request."""
    loaded = await client._wire.run(load, image)
    if inspect.isawaitable(loaded):
        loaded = await loaded
    source, scaling = await client._source(loaded)
    sent = await client._file_to_send(source, scaling)
    text = base64.b64encode(sent.file).decode()
    fields = {"images": [text], "model_version": client.model_version}
    return _QueuedUpload(image, source.sha256, sent.sha256, json.dumps(fields).encode())


async def _enqueue(client: BaseClient, upload: _QueuedUpload[T]) -> None:
    """Send an image and note its job."""

    def parse_job(body: bytes) -> str:
        return str(json.loads(body)["job"])

    upload.job = await _request_with_retry(
        client, parse_job, "POST", "/embed", body=upload.body, image_id=upload.image_id
    )


async def _wait_for(client: BaseClient, upload: _QueuedUpload[T]) -> tuple[T, str | Exception]:
    """Return an image with its id or its error, once the service has encoded it."""

    def parse_image(body: bytes) -> Any:
        return json.loads(body)["images"][0]

    while True:
        try:
            document = await _request_with_retry(
                client, parse_image, "GET", f"/embed/{upload.job}", image_id=upload.image_id
            )
        except errors.Problem as error:
            if error.status != 404:
                raise
            await _enqueue(client, upload)  # the service has lost its jobs
            continue
        if document["state"] == "done":
            client._image_ids.remember(upload.sha256, upload.image_id)
            return upload.image, upload.image_id
        if document["state"] != "queued":
            problem = document.get("problem", CANCELLED)
            return upload.image, errors.problem_from_document(problem)
        await client._wire.sleep(POLL_S)


async def _request_with_retry(
    client: BaseClient,
    parser: Callable[[bytes], T],
    method: str,
    path: str,
    *,
    image_id: str,
    body: bytes | None = None,
) -> T:
    """Return an answer; repeat the request while the service restarts or its queue is full."""
    deadline = time.monotonic() + MAX_RETRY_S
    while True:
        try:
            response = await client._send(method, path, body, image_id)
            return await client._parse(parser, await client._wire.read(response))
        except RETRYABLE:
            if time.monotonic() > deadline:
                raise
        await client._wire.sleep(POLL_S)
