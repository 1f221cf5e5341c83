"""Callers that send requests in a loop and record the outcome of each."""

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
    """Outcome of one request."""

    began: float
    """Start on the monotonic clock."""
    seconds: float
    status: int
    """HTTP status; 0 if no answer came."""
    reason: str
    """`ok`, a problem's type, or how the connection failed:

    - `refused`: no server is listening;
    - `closed`: the server closed an idle keep-alive connection, as HTTP allows; callers retry;
    - `lost`: the request was accepted and no answer came.
    """

    @property
    def ok(self) -> bool:
        """Return whether the request succeeded."""
        return self.status == 200


@dataclass
class Outcomes:
    """Outcomes of all requests of a crowd."""

    all: list[Outcome] = field(default_factory=list)

    def reasons(self) -> Counter[str]:
        """Return the number of outcomes by reason."""
        return Counter(outcome.reason for outcome in self.all)

    def after(self, moment: float) -> Outcomes:
        """Return the outcomes of requests that began later."""
        return Outcomes([outcome for outcome in self.all if outcome.began > moment])

    def answered(self) -> list[Outcome]:
        """Return the outcomes of successful requests."""
        return [outcome for outcome in self.all if outcome.ok]

    def faults(self) -> list[Outcome]:
        """Return server errors, other than "busy" and "unavailable", and lost requests."""
        return [outcome for outcome in self.all if outcome.status >= 500 and outcome.status not in (503, 504)] + [
            outcome for outcome in self.all if outcome.reason == "lost"
        ]


Body = Callable[[], tuple[str, bytes]]
"""Function that returns the next request: path and body."""


def photo(seed: int, width: int = 640, height: int = 480) -> bytes:
    """Return a JPEG file that depends on the seed."""
    draw = random.Random(seed)
    small = Image.new("RGB", (16, 12))
    small.putdata([(draw.randrange(256), draw.randrange(256), draw.randrange(256)) for _ in range(16 * 12)])
    file = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return file.getvalue()


def click(image: bytes, x: int = 300, y: int = 200) -> tuple[str, bytes]:
    """Return path and body of a click on an image."""
    fields = {
        "input_image": base64.b64encode(image).decode(),
        "pos_coords": [[x, y]],
        "mask_format": "rle",
        "segmented_image": "none",
    }
    return "/mobile_sam", json.dumps(fields).encode()


def mixed(images: int = 20, new: float = 0.2, seed: int = 0, prepared: int = 100) -> Body:
    """Return clicks on a few known images and on new ones.

    Args:
        images: number of known images.
        new: share of requests with a new image.
        seed: seed of the new images, which differ between seeds.
        prepared: number of new images to create in advance; further ones are created on demand.
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
    """Thread that sends one request after the other."""

    def __init__(
        self, port: int, body: Body, record: Callable[[Outcome], None], *, pause: float, keep: bool, address: str
    ) -> None:
        """Create a caller.

        Args:
            port: port of a server on this machine.
            body: source of requests.
            record: callback for the outcome of each request.
            pause: minimum seconds between the starts of two requests.
            keep: reuse the connection.
            address: source address, one of this machine's.
        """
        super().__init__(daemon=True)
        self._address = address
        self._port, self._body, self._record, self._pause, self._keep = port, body, record, pause, keep
        self._connection: http.client.HTTPConnection | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        """Send requests until `end` is called."""
        while not self._stopped.is_set():
            path, body = self._body()
            outcome = self._ask(path, body)
            self._record(outcome)
            # Back off if the server is away or busy.
            self._stopped.wait(max(self._pause - outcome.seconds, 0.05 if outcome.status in (0, 503) else 0))
        if self._connection:
            self._connection.close()

    def end(self) -> None:
        """Stop after the current request."""
        self._stopped.set()

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
    """Run concurrent callers until the context ends; all their requests have an outcome then."""
    outcomes = Outcomes()
    threads = [Caller(port, body, outcomes.all.append, pause=pause, keep=keep, address=address) for _ in range(callers)]
    for caller in threads:
        caller.start()
    try:
        yield outcomes
    finally:
        for caller in threads:
            caller.end()
        for caller in threads:
            caller.join(TIMEOUT_S)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile for a share from 0 to 1; 0 if there are no values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
