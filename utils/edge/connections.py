"""Limits on connections: their number, their idle time, and the port of a stopping service.

uvicorn bounds neither the number of connections nor the time of an incomplete request or an unread answer; each of them
keeps a file descriptor, or an answer in memory.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import resource
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from utils.edge.guard import network
from utils.edge.turns import add
from utils.observability.floods import FloodLog

logger = logging.getLogger("bentoml.mobile_sam")

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


class Connections:
    """Transports of the open connections of one API worker, bounded in total and for each address.

    A new connection beyond a limit replaces the one that has waited longest for its caller: idle, without a complete
    request, or with an unread answer. If the service is working for all of them, the new one is closed.
    """

    def __init__(self, max_connections: int) -> None:
        """Start without connections; each address (IPv6: /64 network) gets at most half of the maximum."""
        self._max, self._max_per_address = max_connections, max(1, max_connections // 2)
        self._addresses: dict[asyncio.Transport, str] = {}
        self._counts: Counter[str] = Counter()
        # Longest-waiting first, for each address and for all ("*").
        self._waiting: dict[str, dict[asyncio.Transport, None]] = {"*": {}}
        self._log = FloodLog(logger, max_lines=1, window_s=10)

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: asyncio.Transport, ip: str) -> bool:
        """Add a new connection, marked as waiting; close another one if there are too many.

        Returns:
            False if the connection is refused and must be closed by the code that called this method.
        """
        self._log.summarise_ended()
        address = network(ip)
        if self._counts[address] >= self._max_per_address:
            group, limit = address, self._max_per_address
        elif len(self) >= self._max:
            group, limit = "*", self._max
        else:
            group = ""
        if group:
            oldest = next(iter(self._waiting.get(group, ())), None)
            closed = "closed the longest-waiting one" if oldest else "closed the new one"
            origin = f" from {address}" if group == address else ""
            self._log.log("too-many-connections", f"too many connections{origin} (at most {limit}); {closed}", address)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.abort()
        self._addresses[connection] = address
        self._counts[address] += 1
        self.mark_waiting(connection)
        return True

    def remove(self, connection: asyncio.Transport) -> None:
        """Forget a closed connection."""
        self.mark_busy(connection)
        address = self._addresses.pop(connection, None)
        if address is not None:
            add(self._counts, address, -1)

    def mark_waiting(self, connection: asyncio.Transport) -> None:
        """Mark a connection as waiting for its caller; the time of an earlier mark stays."""
        address = self._addresses.get(connection)
        if address is not None:
            for group in (address, "*"):
                self._waiting.setdefault(group, {}).setdefault(connection)

    def mark_busy(self, connection: asyncio.Transport) -> None:
        """Mark a connection as one that the service is working for."""
        address = self._addresses.get(connection)
        if address is not None and address in self._waiting:
            for group in (address, "*"):
                self._waiting[group].pop(connection, None)
            if not self._waiting[address]:
                del self._waiting[address]


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
