"""The stages of a request, and the times that they take."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import perf_counter

REPORT_INTERVAL_S = 1.0


class Stage:
    """Names of the stages, as metrics have them."""

    CACHE = "cache"  # embedding lookup on this machine
    WAIT = "wait"  # wait for another process that encodes the same image
    REDIS = "redis"  # embedding lookup in Redis
    DECODE = "decode"  # image file to pixels
    RESIZE = "resize"  # pixels to the encoder's frame
    ENCODE = "encode"  # encoder, its queue in Triton included
    STORE = "store"  # write of the embedding to disk
    DECODER = "decoder"  # mask decoder, its queue included; further runs overlap with later stages
    UPSAMPLE = "upsample"  # masks to the image's size
    MASK = "mask"  # masks to the answer's format, their areas and boxes
    PICTURE = "picture"  # picture: drawing and PNG encoding
    RECORD = "record"  # automatic masks: filtering, and the records of those kept


class Stages:
    """Stage timer of a process that works on one request at a time, in several threads: two clock
    reads for each stage.

    A stage does not start if the request has been cancelled.

    Triton's counters are in another process, and each increment is a message to it, which would
    slow a click down. So the sums are sent at most once a second, from another thread. Those of a
    long request grow while it runs.
    """

    def __init__(self, report: Callable[[str, int, float], None]) -> None:
        """Make a timer without data.

        Args:
            report: called in a separate thread with a stage, the number of requests that entered
                it, and the seconds spent in it, unfinished requests included.
        """
        self._report, self._lock = report, Lock()
        self._entered: set[str] = set()
        self._sums: dict[str, tuple[int, float]] = {}
        self.begin()

    def begin(
        self, raise_if_cancelled: Callable[[], None] = lambda: None, *, counts: bool = True
    ) -> None:
        """Begin a request.

        Args:
            raise_if_cancelled: called before each stage.
            counts: whether the stages of this request are reported.
        """
        self._raise_if_cancelled, self._counts, self._entered = raise_if_cancelled, counts, set()

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time the body, also if it raises; a stage may be entered several times."""
        self._raise_if_cancelled()
        start = perf_counter()
        try:
            yield
        finally:
            self._add(stage, perf_counter() - start)

    def _add(self, stage: str, seconds: float) -> None:
        if not self._counts:
            return
        with self._lock:
            idle = not self._sums
            requests, total = self._sums.get(stage, (0, 0.0))
            self._sums[stage] = requests + (stage not in self._entered), total + seconds
            self._entered.add(stage)
        if idle:
            timer = Timer(REPORT_INTERVAL_S, self._report_sums)
            timer.daemon = True
            timer.start()

    def _report_sums(self) -> None:
        with self._lock:
            sums, self._sums = self._sums, {}
        for stage, (requests, seconds) in sums.items():
            self._report(stage, requests, seconds)
