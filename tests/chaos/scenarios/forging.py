"""Hostile strings in every field and header, which must not forge lines or add control characters to the log."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator

from tests.chaos.figures import Figure, Start, listed, ready_afterwards
from tests.chaos.forgery import attempts, count_forged
from tests.chaos.innocent import InnocentCaller
from tests.fuzz.hostile_text import MARK

LOG_DELAY_S = 2
"""Time for the last lines to reach the log."""


def forged_lines(start: Start, count: int = 10_000) -> Iterator[Figure]:
    """Send hostile strings, half of them to a service that logs JSON."""
    for number, log_format in enumerate(("text", "json")):
        name = f"{count // 2} hostile strings, log as {log_format}"
        with start(MOBILE_SAM_LOG_FORMAT=log_format) as server:
            innocent = InnocentCaller(server, alone_s=3)
            begins = server.log.stat().st_size
            with innocent.clicking():
                statuses = Counter(_send(server.port, data) for data in attempts(number, count // 2))
            time.sleep(LOG_DELAY_S)
            log = server.log.read_bytes()[begins:]
            found = count_forged(log)
            seen = f"{log.count(10)} in all, {log.count(MARK.encode())} quote a string; {listed(statuses, 6)}"
            yield Figure(name, f"forged lines ({seen})", found["lines"], 0)
            yield Figure(name, "control characters in the log", found["characters"], 0)
            failed = sum(count for status, count in statuses.items() if status >= "500")
            yield Figure(name, "answers of 500 and more", failed, 0)
            yield from innocent.figures(name)
            yield ready_afterwards(name, server)


def _send(port: int, data: bytes) -> str:
    """Send bytes over a new connection; return the status of the answer, or nothing if there is none."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        while len(answer) < 12 and (more := connection.recv(4096)):
            answer += more
    return answer[9:12].decode("ascii", "replace") if answer.startswith(b"HTTP/1.") else ""
