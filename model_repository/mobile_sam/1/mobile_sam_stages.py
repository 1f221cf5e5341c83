"""How long the stages of requests take: two looks at the clock for each.

Triton's counters are in another process, and each addition is a message to it; those of a request would be felt in a
click. So sums are told at most once a second, beside the work; those of a long request grow while it is worked on,
which shows the watchdog that it is busy and does not hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import perf_counter

CACHE = "cache"
"""Looking for the embedding on this machine."""
WAIT = "wait"
"""Until another process has done with the same image."""
REDIS = "redis"
"""Looking for the embedding where replicas share them."""
DECODE = "decode"
"""From the image's file to pixels."""
RESIZE = "resize"
"""Pixels into the encoder's frame."""
ENCODE = "encode"
"""The encoder's answer, its queue in Triton included."""
STORE = "store"
"""Writing the embedding to disk."""
DECODER = "decoder"
"""The decoder's answers, its queue included. Of several runs all but the first lie beside what follows."""
UPSAMPLE = "upsample"
"""Masks to the image's size."""
MASK = "mask"
"""Masks into the answer's format, and their areas and boxes."""
PICTURE = "picture"
"""Drawing the picture and making a file of it."""
RECORD = "record"
"""Of everything on an image: judging masks, and the records of those kept."""
STAGES = (CACHE, WAIT, REDIS, DECODE, RESIZE, ENCODE, STORE, DECODER, UPSAMPLE, MASK, PICTURE, RECORD)
TOLD_AFTER = 1.0
"""Seconds for which sums are collected."""


class Stages:
    """The stages of the requests of this process, which works on one request at a time, in several threads.

    None begins for a request whose answer nobody waits for any more.
    """

    def __init__(self, tell: Callable[[str, int, float], None]) -> None:
        """Begin with no stage.

        Args:
            tell: is given a stage, the number of requests that had it, and the seconds that were spent there, also in
                requests that are not over yet. Called in a thread of its own.
        """
        self._tell, self._lock = tell, Lock()
        self._had: set[str] = set()
        self._sums: dict[str, tuple[int, float]] = {}
        self.begin()

    def begin(self, check_wanted: Callable[[], None] = lambda: None, *, counts: bool = True) -> None:
        """A request begins.

        Args:
            check_wanted: is asked before each stage, and raises where the answer is no longer wanted.
            counts: whether the stages of this request are told of.
        """
        self._check_wanted, self._counts, self._had = check_wanted, counts, set()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time what is done inside, also where it fails; a stage may have several parts."""
        self._check_wanted()
        begun = perf_counter()
        try:
            yield
        finally:
            self._add(stage, perf_counter() - begun)

    def _add(self, stage: str, seconds: float) -> None:
        if not self._counts:
            return
        with self._lock:
            nothing_due = not self._sums
            requests, before = self._sums.get(stage, (0, 0.0))
            self._sums[stage] = requests + (stage not in self._had), before + seconds
            self._had.add(stage)
        if nothing_due:
            timer = Timer(TOLD_AFTER, self._tell_sums)
            timer.daemon = True
            timer.start()

    def _tell_sums(self) -> None:
        with self._lock:
            sums, self._sums = self._sums, {}
        for stage, (requests, seconds) in sums.items():
            self._tell(stage, requests, seconds)
