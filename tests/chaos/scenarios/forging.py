"""Hostile strings in every field and header, which must not forge lines or add control characters to the log."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Iterator

from tests.chaos import victims
from tests.chaos.figures import Figure, Start, port_of
from tests.chaos.forgery import MARK, attempts, count_forged
from tests.chaos.innocent import InnocentCaller

LOG_DELAY_S = 2
"""Time for the last lines to reach the log."""


def forged_lines(start: Start, count: int = 10_000) -> Iterator[Figure]:
    """Send hostile strings, half of them to a service that logs JSON."""
    for number, log_format in enumerate(("text", "json")):
        name = f"{count // 2} hostile strings, log as {log_format}"
        with start(MOBILE_SAM_LOG_FORMAT=log_format) as server:
            innocent = InnocentCaller(server, alone_s=3)
            begins = server.log.stat().st_size
            statuses: Counter[int] = Counter()
            with innocent.clicking():
                for data in attempts(number, count // 2):
                    statuses[_send(port_of(server), data)] += 1
            time.sleep(LOG_DELAY_S)
            with server.log.open("rb") as file:
                file.seek(begins)
                log = file.read()
            found = count_forged(log)
            seen = ", ".join(f"{status} {times}" for status, times in statuses.most_common(6))
            lines = log.count(b"\n")
            yield Figure(
                name,
                f"forged lines ({lines} in all, {log.count(MARK.encode())} quote a string; {seen})",
                found["lines"],
                0,
            )
            yield Figure(name, "control characters in the log", found["characters"], 0)
            yield Figure(name, "answers of 500 and more", sum(n for status, n in statuses.items() if status >= 500), 0)
            yield from innocent.figures(name)
            yield Figure(name, "ready afterwards", abs(victims.readiness(server) - 200), 0)


def _send(port: int, data: bytes) -> int:
    """Send bytes over a new connection; return the status of the answer, or 0 if there is none."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        while len(answer) < 12 and (more := connection.recv(4096)):
            answer += more
    status = answer[9:12]
    return int(status) if answer.startswith(b"HTTP/1.") and status.isdigit() else 0
