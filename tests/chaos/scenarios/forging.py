"""Hostile strings in every field and header, which must not forge lines or add control
characters to the log.
"""

import contextlib
import json
import random
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator

from tests.chaos.control_client import ControlClient
from tests.chaos.figures import Figure, Start, listed
from tests.fuzz.hostile_text import BEGINNINGS, MARK, hostile_text
from utils.api.requests import EverythingRequest, SegmentRequest

LINES = re.compile(
    # BentoML's
    r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} \[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\] \[[\w:"
    r" -]+\] "
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.]+:\d+\] "  # Triton's
    r'|\{"time":"20\d\d-'  # the service's own, as JSON
    r"|Signal \(\d+\) received\.$"
)
"""Start of every genuine line."""
PATHS = ("/mobile_sam", "/embed", "/everything")
FIELDS = tuple(dict.fromkeys([*SegmentRequest.model_fields, *EverythingRequest.model_fields]))
HEADERS = (
    *(
        "Host",
        "User-Agent",
        "X-Request-ID",
        "Authorization",
        "X-API-Key",
        "Content-Type",
        "Content-Length",
        "Accept",
    ),
    *(
        "Content-Encoding",
        "Transfer-Encoding",
        "Origin",
        "Access-Control-Request-Method",
        "Cookie",
        "traceparent",
    ),
    *(
        "tracestate",
        "baggage",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "Forwarded",
        "Referer",
        "Range",
        "Expect",
    ),
    *(
        "X-Image-Id",
        "If-None-Match",
        "Accept-Language",
        "Upgrade",
        "Connection",
        "Bentoml-Payload-Meta",
    ),
    "X-B3-TraceId",
)
LOG_DELAY_S = 2
"""Time for the last lines to reach the log."""


def forged_lines(start: Start, count: int = 10_000) -> Iterator[Figure]:
    """Send hostile strings, half of them to a service that logs JSON."""
    for number, log_format in enumerate(("text", "json")):
        name = f"{count // 2} hostile strings, log as {log_format}"
        with start(MOBILE_SAM_LOG_FORMAT=log_format) as server:
            control = ControlClient(server)
            begins = server.log.stat().st_size
            with control.clicking():
                statuses = Counter(
                    _send(server.port, data) for data in attempts(number, count // 2)
                )
            time.sleep(LOG_DELAY_S)
            log = server.log.read_bytes()[begins:]
            found = count_forged(log)
            answers = sum(number for status, number in statuses.items() if status)
            yield Figure(
                name, "hostile strings that were answered", answers, count // 4, at_least=True
            )
            seen = (
                f"{log.count(10)} in all, {log.count(MARK.encode())} quote a string;"
                f" {listed(statuses, 6)}"
            )
            yield Figure(name, f"forged lines ({seen})", found["lines"], 0)
            yield Figure(name, "control characters in the log", found["characters"], 0)
            failed = sum(count for status, count in statuses.items() if status >= "500")
            yield Figure(name, "answers of 500 and more", failed, 0)
            yield from control.figures(name)


def _send(port: int, data: bytes) -> str:
    """Send bytes over a new connection; return the status of the answer, or nothing if there is
    none.
    """
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
        contextlib.suppress(OSError),
    ):
        connection.sendall(data)
        while len(answer) < 12 and (more := connection.recv(4096)):
            answer += more
    return answer[9:12].decode("ascii", "replace") if answer.startswith(b"HTTP/1.") else ""


def attempts(seed: int, count: int) -> Iterator[bytes]:
    """Return requests that close their connection, each with a hostile string in one place.

    The places are fields, headers and their names, the path, the query, the method and the version.

    Args:
        seed: seed of the requests.
        count: number of requests.
    """
    draw = random.Random(seed)
    for number in range(count):
        text = hostile_text(draw)
        raw = text.encode("utf-8", "surrogatepass")
        quoted = b"".join(
            b"%%%02x" % byte if byte <= 32 or byte >= 127 else bytes([byte]) for byte in raw
        )
        path, headers, body = draw.choice(PATHS), b"", b"{}"
        line = f"POST {path} HTTP/1.1".encode()
        match number % 10:
            case 0 | 1 | 2 | 3:
                body = _body(draw.choice(FIELDS), text, draw)
            case 4:
                body = json.dumps(
                    {text: 1} if draw.random() < 0.5 else {"prompts": [{text: [[1, 2]]}]}
                ).encode()
            case 5 | 6:
                headers = draw.choice(HEADERS).encode() + b": " + raw + b"\r\n"
            case 7:
                line = (
                    b"POST "
                    + draw.choice((b"/", b"/mobile_sam/", b"/admin/models/"))
                    + quoted
                    + b" HTTP/1.1"
                )
            case 8:
                line = (
                    draw.choice(
                        (b"GET /?%s HTTP/1.1", b"%s / HTTP/1.1", b"GET / %s", b"GET /%s HTTP/1.1")
                    )
                    % raw
                )
            case _:
                headers = raw + b": x\r\n"
        size = (
            b"Content-Length: %d\r\nContent-Type: application/json\r\nHost: x\r\nConnection:"
            b" close\r\n" % len(body)
        )
        yield line + b"\r\n" + headers + size + b"\r\n" + body


def _body(field: str, text: str, draw: random.Random) -> bytes:
    value: object = draw.choice((text, [text], {text: text}, [[text, 1]]))
    if draw.random() < 0.3:
        return json.dumps({"prompts": [{field: value}]}).encode()
    return json.dumps({"pos_coords": [[1, 1]], "image_id": "0" * 64, field: value}).encode()


def count_forged(log: bytes) -> Counter[str]:
    """Count forged lines and control characters in a log.

    Args:
        log: log since the first hostile string was sent.

    Returns:
        Number of `lines` that do not begin like the service's, and of `characters` that are not
        printable.
    """
    found: Counter[str] = Counter()
    # Bytes that are not UTF-8 become unprintable characters.
    for line in log.decode("utf-8", "surrogateescape").split("\n"):
        if line and (not LINES.match(line) or line.startswith(BEGINNINGS)):
            found["lines"] += 1
        # The service's own line breaks are only \n.
        found["characters"] += sum(not char.isprintable() for char in line)
    return found
