"""Graceful start-up and shutdown of an API worker.

On SIGTERM or Ctrl-C the worker finishes the accepted requests and answers new ones with 503. It closes its connections
only once Triton has ended too. So no connection is closed during a request, and the port refuses connections as soon as
nobody answers them.
"""

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from orchestrator.memory import return_large_blocks_on_free, trim
from utils.edge.admission import Admission
from utils.edge.connections import (
    Connections,
    allowed_connections,
    ignore_new_connections,
    stop_listening,
    sweep_forever,
)
from utils.edge.protocol import install
from utils.triton import health, processes

logger = logging.getLogger("bentoml.mobile_sam")

FINISH_TIMEOUT_S = 25.0
"""Time for accepted requests once the service stops; shorter than the watchdog's."""
TRITON_STOP_TIMEOUT_S = 12.0
"""Time to wait for Triton's end; the watchdog kills it earlier."""
POLL_INTERVAL_S = 0.02
LAST_ANSWERS_S = 0.2
"""Time to refuse the requests of connections that were accepted last."""
TRIM_INTERVAL_S = 15.0


class WorkerLifecycle:
    """Graceful start-up and shutdown of one API worker."""

    def __init__(
        self, file: Path, admission: Admission, disconnect: Callable[[], Awaitable[None]], max_connections: int
    ) -> None:
        """Store the worker's parts.

        Args:
            file: file of the state that the service's processes share.
            admission: the worker's requests.
            disconnect: closes the worker's connections to Triton.
            max_connections: callers' connections; fewer if the worker has too few file descriptors.
        """
        self._file, self._admission, self._disconnect = file, admission, disconnect
        self._max_connections = max_connections
        self._parent = os.getppid()
        self._stop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Prepare the worker; call this in its event loop, once the server handles signals and before it listens.

        Raises:
            UnknownServerError: as `protocol.install`.
        """
        processes.die_with_parent(self._parent)
        return_large_blocks_on_free()
        # Freeze permanent objects: with them, the collections that free requests' garbage would be rare.
        gc.collect()
        gc.freeze()
        self._lock = health.RequestsLock(self._file)
        loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():  # only the main thread may handle signals
            return
        self._server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        for signum in (signal.SIGTERM, signal.SIGINT):
            self._wrap_handler(loop, signum, signal.getsignal(signum))
        if isinstance(self._server, uvicorn.Server):
            install(self._server, Connections(allowed_connections(self._max_connections)))
        self._sweep = loop.create_task(sweep_forever(self._server))
        self._trim = loop.create_task(self._trim_memory())

    def _wrap_handler(self, loop: asyncio.AbstractEventLoop, signum: int, server_handler: Any) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            if not self._admission.stopping:
                self._admission.stop()
                loop.call_soon_threadsafe(stop, number)
            elif number == signal.SIGINT:  # a second Ctrl-C stops at once
                server_handler(number, frame)

        def stop(number: int) -> None:
            self._stop = loop.create_task(self._finish(lambda: server_handler(number, None)))

        signal.signal(signum, handle)

    async def _finish(self, close: Callable[[], None]) -> None:
        """Finish the accepted requests, then have the server close its connections."""
        service_stops = await _wait_for(lambda: health.read_health(self._file).stopping, 0.5)
        logger.info("stopping; %d request(s) to finish", self._admission.in_progress)
        closed = False

        def finished() -> bool:
            nonlocal closed
            if not closed and (not service_stops or self._orphaned()):
                # Other workers take new requests, or a new service needs the port.
                closed = True
                close()
            return not self._admission.in_progress

        if not await _wait_for(finished, FINISH_TIMEOUT_S):
            logger.warning("%d request(s) could not be finished in time", self._admission.in_progress)
        # This also aborts bodies that are still arriving.
        self._admission.abort_in_flight()
        await _wait_for(finished, 1)
        if closed:
            return
        await self._disconnect()
        self._lock.release()
        await _wait_for(lambda: health.read_health(self._file).ended or self._orphaned(), TRITON_STOP_TIMEOUT_S)
        ignore_new_connections(self._server)
        await asyncio.sleep(LAST_ANSWERS_S)
        stop_listening(self._server)
        close()

    async def _trim_memory(self) -> None:
        """Return free memory to the system at intervals, while no request is in progress."""
        while True:
            await asyncio.sleep(TRIM_INTERVAL_S)
            if not self._admission.in_progress:
                gc.collect()  # requests of disconnected callers can end in cycles with their bodies
                await asyncio.to_thread(trim)

    def _orphaned(self) -> bool:
        """Return whether the service's first process was killed; its signal may arrive before it is gone."""
        return os.getppid() != self._parent


async def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition, and return whether it became true in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(POLL_INTERVAL_S)
    return True
