"""What the HTTP server leaves open: connections that get nowhere, and the port of a service that stops.

It has no time limit for a request line that never ends, nor for an answer that nobody takes, and each such connection
keeps a file descriptor, or an answer in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from typing import Any

logger = logging.getLogger("bentoml.mobile_sam")

SWEEP_EVERY = 5.0
HEADERS_SECONDS = 20.0
"""That a connection may be open without a complete request. The server itself closes idle ones between two requests."""
ANSWER_SECONDS = 60.0
"""That an answer may wait for its reader to take another byte."""


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
