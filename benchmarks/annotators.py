"""Annotators who click on shared images through the Python client, and the record of their
calls.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from benchmarks.photo import POINTS, new_photo
from mobile_sam_client import Client, Embedding, MobileSamError, Segmentation

REPLICA = "X-Replica"
"""Header of answers with the replica's address, which Envoy adds here."""


@dataclass(frozen=True)
class Call:
    """Call of an annotator: the upload of an image, or a click on it."""

    began: float
    """Start on the monotonic clock."""
    ended: float
    image: int
    point: int
    """Index in `POINTS`; -1 for an upload."""
    failures: int
    """Requests without an answer, or with 429 or 5xx. The client repeats each once."""
    lost: bool
    """Whether the repeated request failed too."""
    encodes: int
    replica: str
    """Replica that answered last; empty if it is not known."""
    weights: str
    mask: str

    @property
    def seconds(self) -> float:
        """Return the time of the call, with all its requests."""
        return self.ended - self.began


class _Noting(httpx.HTTPTransport):
    """Transport that notes what the client does not tell."""

    failures, encodes, replica = 0, 0, ""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.failures += 1  # until there is an answer
        response = super().handle_request(request)
        self.failures -= response.read() is not None and response.status_code < 429
        self.encodes += b'"encode_s"' in response.content
        self.replica = response.headers.get(REPLICA, "")
        return response


@dataclass
class Annotators:
    """Annotators who work at the same time, each with a new image after the other, drawn from
    the same ones.
    """

    url: str
    plan: dict[str, Any]
    """Scenario, as in scale.yaml."""
    calls: list[Call] = field(default_factory=list)
    events: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Start and end of what happened meanwhile, on the monotonic clock."""

    def __post_init__(self) -> None:
        self.files = [new_photo() for _ in range(self.plan["images"])]

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let all work during the block, and a while before and after it."""
        over = threading.Event()
        with ThreadPoolExecutor(self.plan["annotators"]) as pool:
            done = [
                pool.submit(self._work, number, over) for number in range(self.plan["annotators"])
            ]
            try:
                time.sleep(self.plan["quiet_s"])
                yield
                time.sleep(self.plan["quiet_s"])
            finally:
                over.set()
        for answer in done:
            answer.result()

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Note what happens during the block."""
        began = time.monotonic()
        yield
        self.events[name] = began, time.monotonic()

    def during(self, name: str) -> list[Call]:
        """Return the calls that were in progress during an event."""
        began, ended = self.events[name]
        return [call for call in self.calls if call.ended > began and call.began < ended]

    def open_all(self) -> list[Call]:
        """Upload each image, one after another, and return the calls."""
        with Client(self.url, retries=1, transport=(noting := _Noting())) as client:
            for image, file in enumerate(self.files):
                self._call(noting, image, -1, partial(client.embed, file))
        return self.calls[-len(self.files) :]

    def _work(self, number: int, over: threading.Event) -> None:
        draw = random.Random(number)
        # The service limits the requests of each address.
        noting = _Noting(
            local_address=f"127.0.1.{1 + number}" if "//127.0.0.1:" in self.url else None
        )
        with Client(self.url, retries=1, transport=noting) as client:
            over.wait(draw.uniform(0, self.plan["image_s"]))
            while not over.is_set():
                image, leaves_at = (
                    draw.randrange(len(self.files)),
                    time.monotonic() + self.plan["image_s"],
                )
                opened = (
                    self._call(noting, image, -1, partial(client.embed, self.files[image]))
                    or self.files[image]
                )
                click = partial(client.segment, opened, segmented_image="none")
                while time.monotonic() < leaves_at and not over.wait(
                    draw.uniform(0.5, 1.5) * 60 / self.plan["clicks_per_minute"]
                ):
                    point = draw.randrange(len(POINTS))
                    self._call(noting, image, point, partial(click, pos_coords=POINTS[point]))

    def _call(
        self, noting: _Noting, image: int, point: int, work: Callable[[], Embedding | Segmentation]
    ) -> Embedding | None:
        """Record a call; return the image if it was opened."""
        noting.failures, noting.encodes, noting.replica = 0, 0, ""
        began, result = time.monotonic(), None
        with suppress(MobileSamError):
            result = work()
        weights = result.weights.name if result else ""
        mask = result.rle["counts"] if isinstance(result, Segmentation) else ""
        noted = noting.failures, result is None, noting.encodes, noting.replica
        self.calls.append(Call(began, time.monotonic(), image, point, *noted, weights, mask))
        return result if isinstance(result, Embedding) else None
