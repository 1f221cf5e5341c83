"""Images that are encoded in the background: jobs, and the encoder, which works while no caller
waits.
"""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from utils.background.queue import EncodeQueue
from utils.errors import (
    ImageNotCached,
    InferenceUnavailable,
    Problem,
    ServiceError,
    unknown_version,
)
from utils.inference.request import ImageSource
from utils.inference.segmenter import Segmenter
from utils.inference.shares import ACTIVE_S
from utils.inference.triton_segmenter import check_image_id, image_id_of
from utils.observability.context import ADDRESS, KEY_NAME, caller
from utils.observability.outage import Outage

REST_FACTOR = 24.0
"""Pause after an encode while callers are active, as a multiple of its time: fewer than 1 in 20
requests, those beyond p95, meet one that is running."""
MAX_ATTEMPTS = 5
"""Attempts at an image, so that one that ends Triton's processes, or the service, does not do so
forever."""
POLL_S, RETRY_S = 0.1, 2.0
CHECK_S = 60.0
"""Time between two looks into the queue without a new job, for images that another process left."""
ENDED_THE_SERVICE = (
    f"the service ended during each of {MAX_ATTEMPTS} attempts: send the image alone to encode it"
)
EVICTED = "evicted before its turn, or never sent: send the image again"


Charge = Callable[[str, str, int], Awaitable[None]]


class WaitingCallers:
    """Callers of all API workers who wait for Triton.

    Each holds a shared lock of a file, whose modification time is that of the last answer, by the
    machine's monotonic
    clock: nobody sets it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a caller."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # the folder is gone, and the service with it
                file = stack.enter_context(self._file.open("a"))
                stack.callback(_note_time, file.fileno())
                fcntl.flock(file, fcntl.LOCK_SH)
            yield

    def idle_s(self) -> float:
        """Return the seconds since the last answer, 0 while a caller waits."""
        with contextlib.suppress(FileNotFoundError), self._file.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0.0
            idle_s = time.monotonic() - os.fstat(file.fileno()).st_mtime
            return idle_s if idle_s >= 0 else ACTIVE_S  # the file's first time is by another clock
        return ACTIVE_S


def _note_time(descriptor: int) -> None:
    """Set the modification time of a file to now by the monotonic clock."""
    now = time.monotonic()
    os.utime(descriptor, (now, now))


class BackgroundEncoder:
    """Jobs of callers, and the encoder of one API worker."""

    def __init__(
        self,
        queue: EncodeQueue,
        folder: Path,
        segmenter: Segmenter,
        ready: Callable[[], bool],
        charge: Charge | None,
        *,
        versions: Callable[[], Awaitable[list[int]]],
        callers: WaitingCallers,
    ) -> None:
        """Combine the parts. The worker that holds a lock in `folder` encodes, while it is `ready`.

        `charge` counts further requests in the rate limit, one for each image: by the key's name,
        the address, and their number. `versions` returns those that serve requests. `callers` are
        those to whom the encoder gives way.
        """
        self._queue, self._lock, self._segmenter = queue, folder / "encoder", segmenter
        self._versions = versions
        self._ready, self._charge, self.callers = ready, charge, callers
        self._last_caller, self._rested_at, self._added = "", 0.0, asyncio.Event()
        self._outage = Outage("images of the queue are encoded again")

    async def add(
        self, images: Sequence[ImageSource], model_version: int | None = None
    ) -> dict[str, Any]:
        """Queue images whose files are kept first, and return the job, in which unusable files have
        failed.

        Raises:
            QueueTooLarge, QueueFull: there is not enough room.
            TooManyRequests: the images exceed the rate limit.
            InvalidRequest: the version is not loaded, or the header `X-Image-Id` names none of the
                images.
            ServiceError: the files cannot be kept.
        """
        if model_version is not None and model_version not in await self._versions():
            raise unknown_version(model_version)
        owner = KEY_NAME.get()
        if self._charge and len(images) > 1:
            await self._charge(owner, ADDRESS.get(), len(images) - 1)
        sizes = []
        for image in images:
            sizes.append((await image_id_of(image), len(image.file or b"")))
            if image.file:
                # A small file is hashed on the event loop, and others run between two of them.
                await asyncio.sleep(0)
        check_image_id(*(image_id for image_id, _ in sizes))
        job, numbers = await asyncio.to_thread(
            self._queue.add, owner, caller(), model_version, sizes
        )
        try:
            for image, (image_id, _), number in zip(images, sizes, numbers, strict=True):
                if image.file is not None:
                    await self._attempt(number, replace(image, image_id=image_id))
        except BaseException:
            await asyncio.to_thread(self._queue.job, job, owner, cancel=True)
            raise
        self._added.set()
        return await asyncio.to_thread(self._queue.job, job, owner)

    async def _attempt(
        self, row: int, image: ImageSource, version: int | None = None, *, final: bool = False
    ) -> None:
        """Keep the file of an image, or encode one without a file, and record its state, or the
        caller's mistake.

        Raises:
            ServiceError: it is not the caller's, and this is not the `final` attempt.
        """
        problem: Problem | None = None
        try:
            await self._segmenter.embed(image, version, background=True)
        except ServiceError as error:
            problem = error.problem()
            if problem.status >= 500 and not final:
                raise
            if isinstance(error, ImageNotCached):
                problem = replace(problem, detail=EVICTED, errors=())
        if problem:
            state = "failed"
        elif image.file is None:
            state = "done"
        else:
            state = "queued"
        await asyncio.to_thread(
            self._queue.record, row, state, problem.encode() if problem else None
        )

    async def job(self, job: str, *, cancel: bool = False) -> dict[str, Any]:
        """Return the state of a caller's job, after it was cancelled if that is asked for.

        Raises:
            UnknownPath: the caller has no such job.
        """
        return await asyncio.to_thread(self._queue.job, job, KEY_NAME.get(), cancel=cancel)

    async def metrics(self) -> bytes:
        """Return the number of images in each state in Prometheus' text format."""
        try:
            return await asyncio.to_thread(self._queue.metrics)
        except ServiceError:  # which is in the log
            return b""

    async def run(self) -> None:
        """Encode queued images one after another, whenever no other process does.

        Look for them after each job.
        """
        while True:
            try:
                with self._lock.open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    while await self._step():
                        pass
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._added.wait(), CHECK_S)
                self._added.clear()
            except BlockingIOError:
                await asyncio.sleep(RETRY_S)
            except Exception as error:
                if not isinstance(error, ServiceError):
                    self._outage.begin("the queue of images waits", error)
                await asyncio.sleep(RETRY_S)

    async def _step(self) -> bool:
        """Encode the next image, or wait for a moment; return False if none is queued."""
        idle_s = self.callers.idle_s()
        if (
            not self._ready()
            or not idle_s
            or (idle_s < ACTIVE_S and time.monotonic() < self._rested_at)
        ):
            await asyncio.sleep(POLL_S)
            return True
        row = await asyncio.to_thread(self._queue.begin, self._last_caller)
        if row is None:
            self._outage.end()
            return False
        KEY_NAME.set(row["owner"])
        ADDRESS.set(row["caller"])
        self._last_caller, began = row["caller"], time.monotonic()
        # The last one was final, and recorded if its process did not end.
        if row["attempts"] > MAX_ATTEMPTS:
            problem = InferenceUnavailable(ENDED_THE_SERVICE).problem()
            await asyncio.to_thread(self._queue.record, row["id"], "failed", problem.encode())
            return True
        # Above the pixel limit, only adapters' images are queued: others were refused when they
        # were added.
        image = ImageSource(None, row["image_id"], row["owner"], scale_down=True)
        await self._attempt(
            row["id"], image, row["model_version"], final=row["attempts"] >= MAX_ATTEMPTS
        )
        self._outage.end()
        self._rested_at = time.monotonic() + REST_FACTOR * (time.monotonic() - began)
        return True
