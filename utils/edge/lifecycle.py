"""How an API worker begins and ends.

Told to stop (SIGTERM, or Ctrl-C at a terminal), it finishes what it has accepted and answers everything new with 503,
until Triton has ended too; only then it closes its connections. So no caller's connection is closed under a request,
and the port refuses connections as soon as nobody answers them.
"""

from __future__ import annotations

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

from utils import health, processes
from utils.edge.admission import Admission
from utils.edge.connections import Connections, allowed_connections, stop_listening, sweep
from utils.edge.protocol import install

logger = logging.getLogger("bentoml.mobile_sam")

FINISH_LIMIT = 25.0
"""Seconds that accepted requests may take once the service stops; less than the watchdog waits for."""
TRITON_LIMIT = 12.0
"""Seconds to wait for Triton's end; the watchdog kills it before."""
TICK = 0.02
TRIM_EVERY = 15.0


class Lifecycle:
    """Of one API worker."""

    def __init__(
        self,
        file: Path,
        admission: Admission,
        disconnect: Callable[[], Awaitable[None]],
        max_connections: int,
    ) -> None:
        """Make it.

        Args:
            file: where the service's processes share what they know.
            admission: the worker's requests.
            disconnect: closes the worker's connections to Triton.
            max_connections: connections of callers that the worker may have open; fewer where it has not enough file
                descriptors.
        """
        self._file, self._admission, self._disconnect = file, admission, disconnect
        self._max_connections = max_connections
        self._parent = os.getppid()
        self._stop: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """To be called in the worker's event loop, when its server listens for signals, but not yet on a port.

        Raises:
            UnknownServerError: as `protocol.install`.
        """
        processes.die_with_parent(self._parent)
        processes.return_large_blocks()
        # What there is by now stays: left to look at all of it, the collector would come seldom to what requests leave.
        gc.collect()
        gc.freeze()
        self._lock = health.RequestsLock(self._file)
        loop = asyncio.get_running_loop()
        if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
            return
        self._server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        for signum in (signal.SIGTERM, signal.SIGINT):
            self._wrap(loop, signum, signal.getsignal(signum))
        if isinstance(self._server, uvicorn.Server):
            install(self._server, Connections(allowed_connections(self._max_connections)))
        self._sweep = loop.create_task(sweep(self._server))
        self._trim = loop.create_task(self._give_memory_back())

    def _wrap(self, loop: asyncio.AbstractEventLoop, signum: int, server: Any) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            if not self._admission.stopping:
                self._admission.stop()
                loop.call_soon_threadsafe(begin, number)
            elif number == signal.SIGINT:  # a person who presses Ctrl-C again does not want to wait
                server(number, frame)

        def begin(number: int) -> None:
            self._stop = loop.create_task(self._finish(lambda: server(number, None)))

        signal.signal(signum, handle)

    async def _finish(self, close: Callable[[], None]) -> None:
        """Finish what was accepted, then let the server close its connections."""
        together = await _within(0.5, self._service_stops)
        logger.info("stopping; %d request(s) to finish", self._admission.in_progress)
        closed = False

        def finished() -> bool:
            nonlocal closed
            if not closed and (not together or self._orphaned()):
                # Others take what is new, or the port is wanted again.
                closed = True
                close()
            return not self._admission.in_progress

        if not await _within(FINISH_LIMIT, finished):
            logger.warning("%d request(s) could not be finished in time", self._admission.in_progress)
        # With those that take too long, bodies that are still on their way.
        self._admission.cut()
        await _within(1, finished)
        if closed:
            return
        await self._disconnect()
        self._lock.release()
        await _within(TRITON_LIMIT, lambda: health.read_health(self._file).state == "stopped" or self._orphaned())
        stop_listening(self._server)
        close()

    async def _give_memory_back(self) -> None:
        """Again and again, while nobody waits for an answer."""
        while True:
            await asyncio.sleep(TRIM_EVERY)
            if not self._admission.in_progress:
                await asyncio.to_thread(processes.trim)

    def _orphaned(self) -> bool:
        """Whether the service's first process was killed. Its threads die one by one: the signal may come before."""
        return os.getppid() != self._parent

    def _service_stops(self) -> bool:
        return health.read_health(self._file).stopping


async def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; whether it did in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(TICK)
    return True
