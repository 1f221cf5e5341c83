"""Graceful start-up and shutdown of an API worker.

On SIGTERM or Ctrl-C the worker finishes the accepted requests and answers new ones with 503. It
closes its connections only once Triton has ended too. So no connection is closed during a request,
and the port refuses connections as soon as nobody answers them. A step of the shutdown that fails
is logged, and the next one still runs. A worker that has not ended after all that is killed.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from orchestrator.memory import return_large_blocks_on_free, trim
from utils import processes
from utils.edge.admission import Admission
from utils.edge.connections import close_stalled_connections, install
from utils.observability.logs import logger
from utils.triton import health

FINISH_TIMEOUT_S = 25.0
"""Time for accepted requests once the service stops; shorter than the watchdog's."""
TRITON_STOP_TIMEOUT_S = 12.0
"""Time to wait for Triton's end; the watchdog kills it earlier."""
POLL_INTERVAL_S = 0.02
LAST_ANSWERS_S = 0.2
"""Time to refuse the requests of connections that were accepted last."""
CLOSE_TIMEOUT_S = 1.0
"""Time for callers to read the last answers, before their connections are aborted."""
END_TIMEOUT_S = 42
"""Time after which the kernel kills a worker that has not ended; longer than all steps of a
shutdown together."""
TRIM_INTERVAL_S = 15.0
SWITCH_INTERVAL_S = 0.0005
"""Time for which a thread keeps the event loop waiting for the interpreter's lock; Python's
default is 5 ms, several times per click."""


@dataclass(eq=False)
class WorkerLifecycle:
    """Graceful start-up and shutdown of one API worker."""

    file: Path
    """State that the service's processes share."""
    admission: Admission
    """The worker's requests."""
    disconnect: Callable[[], Awaitable[None]]
    """Closes the worker's connections to Triton."""
    max_connections: int
    """Callers' connections; fewer if the worker has too few file descriptors."""
    parent: int
    """Process id of the service's first process; the worker ends with it."""
    _closed_early = False

    def start(self, *background: Coroutine[Any, Any, None]) -> None:
        """Prepare the worker; call this in its event loop, once the server handles signals and
        before it listens.

        Further coroutines run in the background.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        return_large_blocks_on_free()
        # Freeze permanent objects: with them, the collections that free requests' garbage would be
        # rare.
        gc.collect()
        gc.freeze()
        self._lock = health.lock_requests(self.file)
        loop = asyncio.get_running_loop()
        self._server = running_server()
        install(self._server, self.max_connections)
        running = close_stalled_connections(self._server), self._trim_memory(), *background
        self._tasks = [loop.create_task(each) for each in running]

        def handle(number: int, frame: FrameType | None) -> None:
            if not self.admission.stopping:
                self.admission.stop(FINISH_TIMEOUT_S)
                signal.alarm(END_TIMEOUT_S)
                loop.call_soon_threadsafe(stop, number)
            elif number == signal.SIGINT:  # a second Ctrl-C stops at once
                self._server.handle_exit(number, frame)

        def stop(number: int) -> None:
            close = partial(self._server.handle_exit, number, None)
            self._tasks.append(loop.create_task(self._shut_down(close)))

        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, handle)
        processes.die_with_parent(self.parent)

    async def _shut_down(self, close: Callable[[], None]) -> None:
        """Finish the accepted requests, wait for Triton's end, then have the server close its
        connections.
        """
        await attempt(self._finish_requests, close)
        await attempt(self._abort_requests)
        if not self._closed_early:
            for step in (
                self.disconnect,
                self._lock.close,
                self._wait_for_triton,
                self._refuse_connections,
                close,
            ):
                await attempt(step)
        await attempt(self._abort_connections)

    async def _finish_requests(self, close: Callable[[], None]) -> None:
        """Wait for the accepted requests; close first if others take new ones, or a new service
        needs the port.
        """
        service_stops = await _wait_for(lambda: health.read_health(self.file).stopping, 0.5)
        if count := self.admission.in_progress:
            logger.info("%d request(s) to finish", count)

        def finished() -> bool:
            if not self._closed_early and (not service_stops or self._orphaned()):
                self._closed_early = True
                close()
            return not self.admission.in_progress

        if not await _wait_for(finished, FINISH_TIMEOUT_S):
            logger.warning(
                "%d request(s) could not be finished in time", self.admission.in_progress
            )

    async def _abort_requests(self) -> None:
        """Abort the requests that are left, bodies that are still arriving among them."""
        self.admission.abort_in_flight()
        await _wait_for(lambda: not self.admission.in_progress, 1)

    async def _wait_for_triton(self) -> None:
        await _wait_for(
            lambda: health.read_health(self.file).ended or self._orphaned(), TRITON_STOP_TIMEOUT_S
        )

    async def _refuse_connections(self) -> None:
        """Answer what was accepted last, then make the port refuse connections."""
        await asyncio.sleep(LAST_ANSWERS_S)
        stop_listening(self._server)

    async def _abort_connections(self) -> None:
        """Abort connections with unread answers: the server would wait for them."""
        connections = self._server.server_state.connections
        if not await _wait_for(lambda: not connections, CLOSE_TIMEOUT_S):
            for connection in list(connections):
                connection.transport.abort()

    async def _trim_memory(self) -> None:
        """Return free memory to the system at intervals, while no request is in progress."""
        while True:
            await asyncio.sleep(TRIM_INTERVAL_S)
            if not self.admission.in_progress:
                gc.collect()  # requests of disconnected callers can end in cycles with their bodies
                await asyncio.to_thread(trim)

    def _orphaned(self) -> bool:
        """Return whether the service's first process was killed; its signal may arrive before it
        is gone.
        """
        return os.getppid() != self.parent


def running_server() -> uvicorn.Server:
    """Return the HTTP server of this process, which handles its signals.

    Raises:
        RuntimeError: no server has set its method as the handler.
    """
    handler = signal.getsignal(signal.SIGTERM)
    server: uvicorn.Server | None = getattr(handler, "__self__", None)
    if server is None:
        raise RuntimeError("expected uvicorn's server to handle SIGTERM")
    return server


async def attempt(step: Callable[..., Awaitable[None] | None], *arguments: Any) -> None:
    """Run a step of the shutdown. Its failure is logged and does not keep the next one from
    running.
    """
    try:
        if inspect.isawaitable(done := step(*arguments)):
            await done
    except Exception:
        logger.exception(
            "a step of the shutdown failed, the next ones run: %s", getattr(step, "__name__", step)
        )


async def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition, and return whether it became true in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(POLL_INTERVAL_S)
    return True


def stop_listening(server: uvicorn.Server) -> None:
    """Make the server's port refuse connections in all processes that listen on it.

    The service's first process keeps the port open until it ends, and new callers would wait for an
    answer.
    """
    for listener in server.servers:
        for listening in listener.sockets:
            with (
                socket.socket(fileno=os.dup(listening.fileno())) as own,
                contextlib.suppress(OSError),
            ):
                own.shutdown(socket.SHUT_RDWR)
