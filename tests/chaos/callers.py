"""Callers who ask without end, and note what became of every single request."""

from __future__ import annotations

import base64
import http.client
import io
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from PIL import Image

TIMEOUT_S = 90
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Outcome:
    """What became of one request."""

    began: float
    """On the monotonic clock."""
    seconds: float
    status: int
    """0 where no answer came."""
    reason: str
    """`ok`, a problem's type, or how the connection failed:

    - `refused`: nobody listens;
    - `closed`: a kept connection that the server closed while it was idle, as HTTP lets it; a caller asks again;
    - `lost`: a request was taken, and no answer came.
    """

    @property
    def ok(self) -> bool:
        """Whether the caller got what they asked for."""
        return self.status == 200


@dataclass
class Outcomes:
    """Of all requests of a crowd."""

    all: list[Outcome] = field(default_factory=list)

    def reasons(self) -> Counter[str]:
        """How often each came."""
        return Counter(outcome.reason for outcome in self.all)

    def after(self, moment: float) -> Outcomes:
        """Those of requests that began later."""
        return Outcomes([outcome for outcome in self.all if outcome.began > moment])

    def answered(self) -> list[Outcome]:
        """Those that got what they asked for."""
        return [outcome for outcome in self.all if outcome.ok]

    def faults(self) -> list[Outcome]:
        """Answers of the server's own failure, and requests it lost; to say that it is busy or away is none of them."""
        return [outcome for outcome in self.all if outcome.status >= 500 and outcome.status not in (503, 504)] + [
            outcome for outcome in self.all if outcome.reason == "lost"
        ]


Body = Callable[[], tuple[str, bytes]]
"""Makes the next request: a path and a body."""


def photo(seed: int, width: int = 640, height: int = 480) -> bytes:
    """A JPEG file that no other seed gives."""
    draw = random.Random(seed)
    small = Image.new("RGB", (16, 12))
    small.putdata([(draw.randrange(256), draw.randrange(256), draw.randrange(256)) for _ in range(16 * 12)])
    file = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return file.getvalue()


def click(image: bytes, x: int = 300, y: int = 200) -> tuple[str, bytes]:
    """A click on an image."""
    fields = {
        "input_image": base64.b64encode(image).decode(),
        "pos_coords": [[x, y]],
        "mask_format": "rle",
        "segmented_image": "none",
    }
    return "/mobile_sam", json.dumps(fields).encode()


def mixed(images: int = 20, new: float = 0.2, seed: int = 0, prepared: int = 100) -> Body:
    """Clicks on a few images over and over, and now and then on a new one.

    Args:
        images: that come again.
        new: share of requests with one that has not come before.
        seed: no two seeds have a new image in common.
        prepared: new images made before the first request; later ones are made when they are needed.
    """
    known = [click(photo(number)) for number in range(images)]
    draw, lock, number = random.Random(seed), threading.Lock(), 1_000_000 * (seed + 1)
    fresh = [click(photo(number + further)) for further in range(prepared)]

    def body() -> tuple[str, bytes]:
        nonlocal number
        with lock:
            if draw.random() >= new:
                return draw.choice(known)
            if fresh:
                return fresh.pop()
            number += 1
            own = number + prepared
        return click(photo(own))

    return body


class Caller(threading.Thread):
    """Asks again as soon as there is an answer."""

    def __init__(
        self, port: int, body: Body, noted: Callable[[Outcome], None], *, pause: float, keep: bool, address: str
    ) -> None:
        """Make one.

        Args:
            port: of a server of this machine.
            body: makes requests.
            noted: is told what became of each.
            pause: seconds from the beginning of one to that of the next, unless an answer takes longer.
            keep: over a kept connection, not a new one each time.
            address: of this machine, from which it asks.
        """
        super().__init__(daemon=True)
        self._address = address
        self._port, self._body, self._noted, self._pause, self._keep = port, body, noted, pause, keep
        self._connection: http.client.HTTPConnection | None = None
        self._over = threading.Event()

    def run(self) -> None:
        """Until it is told to end."""
        while not self._over.is_set():
            path, body = self._body()
            outcome = self._ask(path, body)
            self._noted(outcome)
            # Nobody asks a thousand times a second where nobody answers.
            self._over.wait(max(self._pause - outcome.seconds, 0.05 if outcome.status in (0, 503) else 0))
        if self._connection:
            self._connection.close()

    def end(self) -> None:
        """No further request."""
        self._over.set()

    def _ask(self, path: str, body: bytes) -> Outcome:
        began = time.monotonic()
        status, reason, kept = 0, "", self._connection is not None
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    "127.0.0.1", self._port, timeout=TIMEOUT_S, source_address=(self._address, 0)
                )
                self._connection.connect()
        except OSError:
            self._connection = None
            return Outcome(began, time.monotonic() - began, 0, "refused")
        try:
            self._connection.request("POST", path, body, JSON)
            response = self._connection.getresponse()
            data = response.read()
            status, reason = response.status, "ok"
            if status != 200:
                is_problem = response.headers.get("Content-Type") == "application/problem+json"
                reason = json.loads(data)["type"].rpartition(":")[2] if is_problem else f"{status} that is no problem"
            if response.will_close or not self._keep:
                self._connection.close()
                self._connection = None
        except (OSError, http.client.HTTPException) as error:
            nothing_came = isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError))
            reason = "closed" if kept and nothing_came else "lost"
            if self._connection:
                self._connection.close()
            self._connection = None
        return Outcome(began, time.monotonic() - began, status, reason)


@contextmanager
def crowd(
    port: int, body: Body, callers: int, *, pause: float = 0.0, keep: bool = True, address: str = "127.0.0.1"
) -> Iterator[Outcomes]:
    """So many callers at once, until the context ends; then all of their requests have an outcome."""
    outcomes = Outcomes()
    people = [Caller(port, body, outcomes.all.append, pause=pause, keep=keep, address=address) for _ in range(callers)]
    for caller in people:
        caller.start()
    try:
        yield outcomes
    finally:
        for caller in people:
            caller.end()
        for caller in people:
            caller.join(TIMEOUT_S)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of values does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
