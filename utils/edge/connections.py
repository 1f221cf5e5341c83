"""What the HTTP server leaves open: connections in any number, slow ones, and the port of a service that stops.

It has no bound on connections, no time limit for a request line that never ends, nor for an answer that nobody takes,
and each such connection keeps a file descriptor, or an answer in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

from utils.edge.floods import FloodLog
from utils.edge.guard import network

logger = logging.getLogger("bentoml.mobile_sam")

RESERVED_DESCRIPTORS = 64
"""File descriptors of a worker that connections of callers leave free: for connections to Triton, files, the log."""
MIN_CONNECTIONS = 8

SWEEP_EVERY = 5.0
HEADERS_SECONDS = 20.0
"""That a connection may be open without a complete request. The server itself closes idle ones between two requests."""
ANSWER_SECONDS = 60.0
"""That an answer may wait for its reader to take another byte."""


class Connection(Protocol):
    """An open connection."""

    def abort(self) -> None:
        """Close it without sending what waits."""


class Connections:
    """The connections of one API worker, of which a bounded number is open, in all and from one address.

    A new one beyond that takes the place of the one that has waited longest for its caller: idle, without a complete
    request, or with an answer that nobody reads. Where the service works for all of them, the new one is closed.
    """

    def __init__(self, max_connections: int) -> None:
        """Make it.

        Args:
            max_connections: open connections in all; half of it from one address (of IPv6, one /64 network).
        """
        self._max, self._max_per_address = max_connections, max(1, max_connections // 2)
        self._addresses: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()
        # Ordered by the time since which they wait, for each address and for all ("*").
        self._waiting: dict[str, dict[Connection, None]] = {"*": {}}
        self._log = FloodLog(logger, at_most=1, seconds=10)

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: Connection, ip: str) -> bool:
        """Add a new connection, which waits for its caller, and close another one if there are too many.

        Args:
            connection: a new one.
            ip: address of the caller.

        Returns:
            Whether there is a place; if not, the caller of this method closes the connection.
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
            closed = "closed the one that waited longest" if oldest else "closed the new one"
            of = f" from {address}" if group == address else ""
            self._log.log(
                "too-many-connections", f"too many connections{of}: expected at most {limit}; {closed}", address
            )
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.abort()
        self._addresses[connection] = address
        self._counts[address] += 1
        self.waits(connection)
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        self.works(connection)
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._counts[address] -= 1
            if not self._counts[address]:
                del self._counts[address]

    def waits(self, connection: Connection) -> None:
        """Note that a connection waits for its caller, if that is not known already."""
        address = self._addresses.get(connection)
        if address is not None:
            for group in (address, "*"):
                self._waiting.setdefault(group, {}).setdefault(connection)

    def works(self, connection: Connection) -> None:
        """Note that the service works for a connection."""
        address = self._addresses.get(connection)
        if address is not None and address in self._waiting:
            for group in (address, "*"):
                self._waiting[group].pop(connection, None)
            if not self._waiting[address]:
                del self._waiting[address]


def allowed_connections(setting: int) -> int:
    """Connections that a worker may have open: a setting, or less where this process has too few file descriptors.

    Raises:
        OSError: /proc cannot be read.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    allowed = max(MIN_CONNECTIONS, descriptors - used - RESERVED_DESCRIPTORS)
    if allowed < setting:
        logger.warning(
            "%d connections are accepted, not %d: this process may have %d file descriptors (LimitNOFILE, ulimit -n)",
            allowed,
            setting,
            descriptors,
        )
    return min(setting, allowed)


class Sweeper:
    """Closes connections that get nowhere."""

    def __init__(self, server: Any) -> None:
        """Make one.

        Args:
            server: a `uvicorn.Server`.
        """
        self._server = server
        self._seen: dict[Any, tuple[Any, float]] = {}

    def sweep(self, now: float) -> int:
        """Look at all connections; how many of them were closed.

        Args:
            now: on any clock in seconds, the same at every call.
        """
        connections = set(self._server.server_state.connections)
        self._seen = {connection: seen for connection, seen in self._seen.items() if connection in connections}
        closed = 0
        for connection in connections:
            cycle, transport = connection.cycle, connection.transport
            waiting = transport.get_write_buffer_size()
            idle = cycle is None or cycle.response_complete
            if waiting:
                state, limit = ("answer", waiting), ANSWER_SECONDS
            elif idle:
                state, limit = ("headers", id(cycle)), HEADERS_SECONDS
            else:  # the edge has limits for a request's body and for the answer
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
    """Have the port refuse connections, in all processes that listen on it.

    Else callers who come now would wait for an answer: the service's first process keeps the port open until it ends.

    Args:
        server: a `uvicorn.Server`.
    """
    for listener in getattr(server, "servers", []):
        for listening in listener.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as own, contextlib.suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)


async def sweep(server: Any) -> None:
    """Sweep again and again.

    Args:
        server: a `uvicorn.Server`; another server's connections are left alone.
    """
    if not hasattr(server, "server_state"):
        logger.warning("this server's connections cannot be looked at: slow ones stay open")
        return
    sweeper = Sweeper(server)
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_EVERY)
        if closed := sweeper.sweep(loop.time()):
            logger.info("closed %d connection(s) that got nowhere", closed)
