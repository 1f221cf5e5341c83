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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

TIMEOUT_S = 90
JSON = {"Content-Type": "application/json"}
NONE: Mapping[str, str] = {}


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

    def faults(self) -> int:
        """Return the number of server errors, other than "busy" and "unavailable", and of lost requests."""
        return sum(
            outcome.reason == "lost" or (outcome.status >= 500 and outcome.status not in (503, 504))
            for outcome in self.all
        )


Body = Callable[[], tuple[str, bytes]]
"""Function that returns the next request: path and body."""


def photo(seed: int) -> bytes:
    """Return a JPEG file of 640 x 480 pixels that depends on the seed."""
    small = np.random.default_rng(seed).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return file.getvalue()


def click(image: bytes) -> tuple[str, bytes]:
    """Return path and body of a click on an image."""
    fields = {
        "input_image": base64.b64encode(image).decode(),
        "pos_coords": [[300, 200]],
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


def ask(
    connection: http.client.HTTPConnection, path: str, body: bytes | None, headers: Mapping[str, str] = NONE
) -> Outcome:
    """Send a request, over a new connection if it is closed, and wait for the answer; without a body it is a GET."""
    began, kept = time.monotonic(), connection.sock is not None
    status, reason = 0, "refused"
    try:
        if not kept:
            connection.connect()
        reason = "lost"
        connection.request("GET" if body is None else "POST", path, body, {**JSON, **headers})
        response = connection.getresponse()
        data = response.read()
        status, reason = response.status, "ok" if response.status == 200 else slug(data)
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        if kept and isinstance(error, (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)):
            reason = "closed"
    return Outcome(began, time.monotonic() - began, status, reason)


def slug(answer: bytes) -> str:
    """Return the last part of a problem's type, or the beginning of an answer that is no problem."""
    try:
        return str(json.loads(answer)["type"]).rpartition(":")[2]
    except (ValueError, KeyError):
        return f"no problem: {answer[:50]!r}"


@contextmanager
def crowd(
    port: int,
    body: Callable[[], tuple[str, bytes | None]],
    callers: int,
    *,
    pause: float = 0.0,
    keep: bool = True,
    address: str = "127.0.0.1",
    headers: Mapping[str, str] = NONE,
) -> Iterator[Outcomes]:
    """Run concurrent callers until the context ends; all their requests have an outcome then.

    Args:
        port: port of a server on this machine.
        body: source of requests; without a body they are GET requests.
        callers: number of callers.
        pause: minimum seconds between the starts of two requests of a caller.
        keep: reuse connections.
        address: source address, one of this machine's.
        headers: further headers of all requests.
    """
    outcomes, stopped = Outcomes(), threading.Event()

    def call() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, TIMEOUT_S, source_address=(address, 0))
        while not stopped.is_set():
            outcome = ask(connection, *body(), headers)
            outcomes.all.append(outcome)
            if not keep:
                connection.close()
            # Back off if the server is away or busy.
            stopped.wait(max(pause - outcome.seconds, 0.05 if outcome.status in (0, 503) else 0))
        connection.close()

    threads = [threading.Thread(target=call, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        stopped.set()
        for thread in threads:
            thread.join(TIMEOUT_S)
