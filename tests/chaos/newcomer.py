"""Newcomer, who arrives when attackers hold what all callers share, and what becomes of its
requests.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import requests
from requests_toolbelt.adapters.source import SourceAddressAdapter

from benchmarks.stats import percentile
from harness.load import Replies, Reply, Request, crowd, json_request
from tests.chaos.callers import photo
from tests.chaos.control_client import PAUSE_S, waits
from tests.chaos.figures import Figure, listed

ADDRESS = "127.0.0.200"
KNOWN = photo(4711)
"""Image of the clicks."""
EMBED_EVERY_S = 1.0
ASK_EVERY_S = 0.5
MAX_SLOWDOWN, ALLOWANCE_MS = 4.0, 50.0
MAX_LIVE_S = 0.2
ENCODES_PER_CALLER = 2.0
"""Time of a new image, as a multiple of that alone and of the number of callers."""
MIN_REQUESTS = 3
"""Requests of each kind in one stay: with fewer, the figures say nothing."""
TIMEOUT_S = 60.0
_numbers = itertools.count(5_000_000)


@dataclass(frozen=True)
class Ask:
    """What a newcomer asks for beside clicks and new images."""

    what: str
    send: Callable[[requests.Session, str], str]
    """Function of a session of the newcomer's address and the URL; returns `ok`, or why not."""
    max_s: float | None = None
    """Goal for the slowest answer."""


@dataclass
class Seen:
    """Outcomes of one stay of a newcomer."""

    probes: Replies = field(default_factory=Replies)
    clicks: Replies = field(default_factory=Replies)
    embeds: Replies = field(default_factory=Replies)
    asked: Replies = field(default_factory=Replies)

    def refused(self) -> int:
        """Return the number of clicks that were not answered."""
        return len(self.clicks.all) - len(self.clicks.answered())

    def p95_ms(self) -> float:
        """Return the 95th percentile of the waits for clicks."""
        return 1000 * percentile(waits(self.clicks) or [float("inf")], 95)


class Newcomer:
    """Caller who clicks on a known image, sends new ones, and asks for something else, from an
    address of its own.
    """

    def __init__(
        self, port: int, ask: Ask | None = None, headers: dict[str, str] | None = None
    ) -> None:
        """Send the image whose embedding the clicks find.

        Args:
            port: port of a service, or of a proxy in front of it.
            ask: what else to ask for.
            headers: headers of all its requests.
        """
        self._port, self._ask, self._headers = port, ask, headers or {}
        self._session = requests.Session()
        self._session.mount("http://", SourceAddressAdapter(ADDRESS))
        self._session.headers.update(self._headers)
        self.url = f"http://127.0.0.1:{port}"
        sent = self._session.post(f"{self.url}/embed", files={"image": KNOWN}, timeout=TIMEOUT_S)
        sent.raise_for_status()
        self.image_id: str = sent.json()["image_id"]
        fields = {"image_id": self.image_id, "pos_coords": [[300, 200]]}
        options = {"mask_format": "rle", "segmented_image": "none"}
        self._click = json_request(fields | options, headers=self._headers)

    @contextmanager
    def there(self) -> Iterator[Seen]:
        """Send requests of all kinds until the context ends."""
        caller = partial(crowd, self._port, callers=1, keep=False, address=ADDRESS)
        seen = Seen()
        with ExitStack() as stack:
            seen.probes = stack.enter_context(caller(lambda: Request("/livez"), pause=PAUSE_S))
            seen.clicks = stack.enter_context(caller(lambda: self._click, pause=PAUSE_S))
            seen.embeds = stack.enter_context(caller(self._new_image, pause=EMBED_EVERY_S))
            stack.enter_context(self._asking(seen.asked))
            yield seen

    def figures(self, name: str, alone: Seen, beside: Seen, attackers: int) -> Iterator[Figure]:
        """Yield the figures of a stay beside so many attackers, with those of a stay alone as
        the measure.
        """
        clicks = beside.clicks
        for what, replies in {
            "clicks": clicks,
            "new images": beside.embeds,
            "answers of /livez": beside.probes,
        }.items():
            yield Figure(name, f"newcomer: {what}", len(replies.all), MIN_REQUESTS, at_least=True)
        label = f"newcomer: refused clicks of {len(clicks.all)} ({listed(clicks.reasons())})"
        yield Figure(name, label, beside.refused(), 0)
        if len(alone.clicks.answered()) < MIN_REQUESTS or not alone.embeds.answered():
            raise RuntimeError("a newcomer alone got too few answers to compare with")
        alone_ms = alone.p95_ms()
        goal = MAX_SLOWDOWN * alone_ms + ALLOWANCE_MS
        yield Figure(
            name, f"newcomer: p95 of clicks (alone {alone_ms:.0f} ms)", beside.p95_ms(), goal, "ms"
        )
        embeds = beside.embeds
        failed = len(embeds.all) - len(embeds.answered())
        yield Figure(
            name,
            f"newcomer: refused new images of {len(embeds.all)} ({listed(embeds.reasons())})",
            failed,
            0,
        )
        usual = statistics.median(reply.seconds for reply in alone.embeds.all_ok())
        slowest = max((reply.seconds for reply in embeds.answered()), default=float("inf"))
        goal = ENCODES_PER_CALLER * usual * (attackers + 1)
        yield Figure(name, f"newcomer: slowest new image (alone {usual:.2f} s)", slowest, goal, "s")
        live = max(
            (reply.seconds if reply.ok else float("inf") for reply in beside.probes.all),
            default=float("inf"),
        )
        yield Figure(
            name, f"slowest of {len(beside.probes.all)} answers of /livez", live, MAX_LIVE_S, "s"
        )
        if self._ask:
            yield from self._asked_figures(name, self._ask, alone.asked, beside.asked)

    def _asked_figures(
        self, name: str, ask: Ask, alone: Replies, beside: Replies
    ) -> Iterator[Figure]:
        alone.all_ok()
        yield Figure(name, f"newcomer: {ask.what}", len(beside.all), 1, at_least=True)
        failed = len(beside.all) - len(beside.answered())
        label = f"newcomer: refused {ask.what} of {len(beside.all)} ({listed(beside.reasons())})"
        yield Figure(name, label, failed, 0)
        if ask.max_s is not None:
            usual, slowest = (
                max(reply.seconds for reply in replies.all) for replies in (alone, beside)
            )
            yield Figure(
                name, f"newcomer: slowest {ask.what} (alone {usual:.2f} s)", slowest, ask.max_s, "s"
            )

    def _new_image(self) -> Request:
        file = photo(next(_numbers))
        head = {"Content-Type": "image/jpeg", **self._headers}
        return Request("/embed", file, head)

    @contextmanager
    def _asking(self, found: Replies) -> Iterator[None]:
        """Ask now and then until the context ends."""
        over = threading.Event()

        def repeat(ask: Ask) -> None:
            while not over.wait(ASK_EVERY_S):
                began = time.monotonic()
                try:
                    reason = ask.send(self._session, self.url)
                except requests.RequestException as error:
                    reason = type(error).__name__
                took = time.monotonic() - began
                found.all.append(Reply(began, took, 200 if reason == "ok" else 0, reason))

        asker = threading.Thread(target=repeat, args=(self._ask,), daemon=True)
        if self._ask:
            asker.start()
        try:
            yield
        finally:
            over.set()
            if self._ask:
                asker.join(2 * TIMEOUT_S)
