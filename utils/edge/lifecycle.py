"""Graceful start-up and shutdown of an API worker, and the end of its stalled connections.

On SIGTERM or Ctrl-C the worker finishes the accepted requests and answers new ones with 503. It closes its connections
only once Triton has ended too. So no connection is closed during a request, and the port refuses connections as soon as
nobody answers them.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import struct
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
TRIM_INTERVAL_S = 15.0

RESERVED_DESCRIPTORS = 64
"""File descriptors that a worker keeps free for connections to Triton, files and the log."""
MIN_CONNECTIONS = 8

SWEEP_INTERVAL_S = 5.0
HEADERS_TIMEOUT_S = 20.0
"""Time for a complete request on an open connection. uvicorn itself closes connections idle between requests."""
ANSWER_STALL_TIMEOUT_S = 60.0
"""Time after which an answer is dropped if its reader takes no further byte."""

SO_ATTACH_FILTER, BPF_RETURN = 26, 0x06
"""Socket option and instruction of Linux's packet filters (Documentation/networking/filter.rst in its sources)."""


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


def ignore_new_connections(server: Any) -> None:
    """Drop the first packet of new connections to a `uvicorn.Server`, in all processes that listen on its port.

    Connections that already wait to be accepted can then be answered; `stop_listening` would reset them. Callers of new
    ones try again after a second, when the port refuses them.
    """
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, 0))  # accept 0 bytes
    program = struct.pack("HL", 1, ctypes.addressof(instruction))
    for listening in _listening(server):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


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
