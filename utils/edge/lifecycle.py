"""Graceful start-up and shutdown of an API worker, and the end of its stalled connections.

On SIGTERM or Ctrl-C the worker finishes the accepted requests and answers new ones with 503. It closes its connections
only once Triton has ended too. So no connection is closed during a request, and the port refuses connections as soon as
nobody answers them. A step of the shutdown that fails is logged, and the next one still runs. A worker that has not
ended after all that is killed.
"""

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from orchestrator.memory import return_large_blocks_on_free, trim
from utils.edge.admission import Admission
from utils.edge.protocol import Connections, install
from utils.triton import health, processes

logger = logging.getLogger("bentoml.mobile_sam")

FINISH_TIMEOUT_S = 25.0
"""Time for accepted requests once the service stops; shorter than the watchdog's."""
TRITON_STOP_TIMEOUT_S = 12.0
"""Time to wait for Triton's end; the watchdog kills it earlier."""
POLL_INTERVAL_S = 0.02
LAST_ANSWERS_S = 0.2
"""Time to refuse the requests of connections that were accepted last."""
CLOSE_TIMEOUT_S = 1.0
"""Time for callers to read the last answers, before their connections are aborted."""
END_TIMEOUT_S = 42.0
"""Time after which a worker that has not ended is killed; longer than all steps of a shutdown together."""
TRIM_INTERVAL_S = 15.0
SWITCH_INTERVAL_S = 0.0005
"""Time for which a thread keeps the event loop waiting for the interpreter's lock; Python's default is 5 ms, several
times per click."""

RESERVED_DESCRIPTORS = 64
"""File descriptors that a worker keeps free for connections to Triton, files and the log."""
MIN_CONNECTIONS = 8

SWEEP_INTERVAL_S = 5.0
HEADERS_TIMEOUT_S = 20.0
"""Time for a complete request on an open connection. uvicorn itself closes connections idle between requests."""
ANSWER_STALL_TIMEOUT_S = 60.0
"""Time after which an answer is dropped if its reader takes no further byte."""


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
        self._closed_early = False

    def start(self) -> None:
        """Prepare the worker; call this in its event loop, once the server handles signals and before it listens.

        Raises:
            UnknownServerError: as `protocol.install`.
        """
        processes.die_with_parent(self._parent)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
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
                kill_process_after(END_TIMEOUT_S)
                loop.call_soon_threadsafe(stop, number)
            elif number == signal.SIGINT:  # a second Ctrl-C stops at once
                server_handler(number, frame)

        def stop(number: int) -> None:
            self._stop = loop.create_task(self._shut_down(lambda: server_handler(number, None)))

        signal.signal(signum, handle)

    async def _shut_down(self, close: Callable[[], None]) -> None:
        """Finish the accepted requests, wait for Triton's end, then have the server close its connections."""
        await attempt(self._finish_requests, close)
        await attempt(self._abort_requests)
        if not self._closed_early:
            for step in (self._disconnect, self._lock.release, self._wait_for_triton, self._refuse_connections, close):
                await attempt(step)
        await attempt(self._abort_connections)

    async def _finish_requests(self, close: Callable[[], None]) -> None:
        """Wait for the accepted requests; close first if others take new ones, or a new service needs the port."""
        service_stops = await _wait_for(lambda: health.read_health(self._file).stopping, 0.5)
        logger.info("stopping; %d request(s) to finish", self._admission.in_progress)

        def finished() -> bool:
            if not self._closed_early and (not service_stops or self._orphaned()):
                self._closed_early = True
                close()
            return not self._admission.in_progress

        if not await _wait_for(finished, FINISH_TIMEOUT_S):
            logger.warning("%d request(s) could not be finished in time", self._admission.in_progress)

    async def _abort_requests(self) -> None:
        """Abort the requests that are left, bodies that are still arriving among them."""
        self._admission.abort_in_flight()
        await _wait_for(lambda: not self._admission.in_progress, 1)

    async def _wait_for_triton(self) -> None:
        await _wait_for(lambda: health.read_health(self._file).ended or self._orphaned(), TRITON_STOP_TIMEOUT_S)

    async def _refuse_connections(self) -> None:
        """Answer what was accepted last, then make the port refuse connections."""
        await asyncio.sleep(LAST_ANSWERS_S)
        stop_listening(self._server)

    async def _abort_connections(self) -> None:
        """Abort connections with unread answers: the server would wait for them."""
        state = getattr(self._server, "server_state", None)
        if state is not None and not await _wait_for(lambda: not state.connections, CLOSE_TIMEOUT_S):
            for connection in list(state.connections):
                connection.transport.abort()

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


async def attempt(step: Callable[..., Awaitable[None] | None], *arguments: Any) -> None:
    """Run a step of the shutdown. Its failure is logged and does not keep the next one from running."""
    try:
        if inspect.isawaitable(done := step(*arguments)):
            await done
    except Exception:
        logger.exception("a step of the shutdown failed, the next ones run: %s", getattr(step, "__name__", step))


def kill_process_after(seconds: float) -> None:
    """Kill this process if it still runs then, whatever its event loop and its threads do."""

    def end() -> None:
        logger.error("the worker has not ended within %g s, it is killed", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def _wait_for(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait for a condition, and return whether it became true in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline:
            return False
        await asyncio.sleep(POLL_INTERVAL_S)
    return True


def allowed_connections(setting: int) -> int:
    """Return the setting, or less if this process has too few file descriptors.

    Raises:
        OSError: /proc cannot be read.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    allowed = max(MIN_CONNECTIONS, descriptors - used - RESERVED_DESCRIPTORS)
    if allowed < setting:
        logger.warning(
            "accepting at most %d connections instead of %d: this process is limited to %d file descriptors "
            "(LimitNOFILE, ulimit -n)",
            allowed,
            setting,
            descriptors,
        )
    return min(setting, allowed)


class Sweeper:
    """Closes stalled connections of a `uvicorn.Server`."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._seen: dict[Any, tuple[Any, float]] = {}

    def sweep(self, now: float) -> int:
        """Close stalled connections and return their number; `now` is in seconds."""
        connections = set(self._server.server_state.connections)
        self._seen = {connection: seen for connection, seen in self._seen.items() if connection in connections}
        closed = 0
        for connection in connections:
            cycle, transport = connection.cycle, connection.transport
            waiting = transport.get_write_buffer_size()
            idle = cycle is None or cycle.response_complete
            if waiting:
                state, limit = ("answer", waiting), ANSWER_STALL_TIMEOUT_S
            elif idle:
                state, limit = ("headers", id(cycle)), HEADERS_TIMEOUT_S
            else:  # the edge limits the time of the body and of the answer
                self._seen.pop(connection, None)
                continue
            last, since = self._seen.get(connection, (None, now))
            if last != state:
                since = now
            self._seen[connection] = (state, since)
            if now - since > limit:
                transport.abort()
                closed += 1
        return closed


def stop_listening(server: Any) -> None:
    """Make the port of a `uvicorn.Server` refuse connections in all processes that listen on it.

    The service's first process keeps the port open until it ends, and new callers would wait for an answer.
    """
    for listening in _listening(server):
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)


def _listening(server: Any) -> Iterator[socket.socket]:
    """Yield copies of a server's listening sockets."""
    for listener in getattr(server, "servers", []):
        for listening in listener.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as own:
                yield own


async def sweep_forever(server: Any) -> None:
    """Close stalled connections of a `uvicorn.Server` at intervals; other servers' connections are left alone."""
    if not hasattr(server, "server_state"):
        logger.warning("cannot inspect this server's connections: stalled ones stay open")
        return
    sweeper = Sweeper(server)
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_S)
        if closed := sweeper.sweep(loop.time()):
            logger.info("closed %d stalled connection(s)", closed)
