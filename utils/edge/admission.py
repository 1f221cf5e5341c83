"""Admission control: what requests in progress hold, shared fairly among callers, and how they
are ended early.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

from utils.errors import Stopping, mib
from utils.inference.ending import Ending
from utils.inference.shares import Shares

SMALL_ANSWER_BYTES = 65_536
"""Size up to which answers are not counted: the transport's buffer holds that much of any
answer."""
MAX_CROWD = 8
"""Number of times `max_requests` that many callers together may have in progress."""
StartAnswer = Callable[[int], None]


class Admission:
    """Requests in progress in one API worker, and the bytes of their bodies and answers.

    Up to four callers share `max_requests`. For each further one there is a quarter of them more,
    so that its share does not shrink to a single request: the page of one person sends up to six at
    once, and its clicks must not wait for its own new image, nor be refused because of it.

    That is more than the time limit of an answer allows for, which is the time to encode
    `max_requests` new images per worker (`Settings.timeout_s`). So new images that wait for the
    encoder have that limit of their own (`TritonSegmenter.max_new_images`). Other requests take no
    encode, and callers take turns at their models: a newcomer's click waits for at most one request
    of each other caller, however many they have here.
    """

    def __init__(self, max_requests: int, bodies_bytes: int, answers_bytes: int = 0) -> None:
        """Start without any requests.

        Args:
            max_requests: requests in progress of few callers; `MAX_CROWD` times as many of many
                callers. A request stops counting when its answer begins.
            bodies_bytes: bytes of all bodies together, including those that are still arriving.
            answers_bytes: bytes of all answers that are being sent.
        """
        self.requests = Shares(
            max_requests, "requests in progress", max_capacity=MAX_CROWD * max_requests
        )
        self.bodies = Shares(bodies_bytes, "request bodies in memory", mib)
        self.answers = Shares(answers_bytes, "answers that wait to be read", mib)
        self._endings: set[Ending] = set()
        self._aborted = False
        self._finish_by = math.inf
        self.in_progress = 0

    @property
    def stopping(self) -> bool:
        """Return whether new requests are refused because the service stops."""
        return self._finish_by < math.inf

    def stop(self, finish_timeout_s: float) -> None:
        """Refuse new requests, and wait this long for those in progress."""
        self._finish_by = time.monotonic() + finish_timeout_s

    def time_left_s(self) -> float:
        """Return the seconds for which requests in progress are waited for, infinite until the
        service stops.
        """
        return self._finish_by - time.monotonic()

    def check(self, caller: str = "") -> None:
        """Check that another request of a caller can be accepted.

        Raises:
            Stopping: the service is stopping.
            Overloaded: there is no room for it.
        """
        if self.stopping:
            raise Stopping
        self.requests.check(caller)

    @contextlib.contextmanager
    def slot(
        self, caller: str = "", lose: Callable[[], None] = lambda: None
    ) -> Iterator[StartAnswer]:
        """Hold a slot for one request of a caller, and yield a function that counts its answer in
        place of the request.

        The function takes the size of the answer in bytes, and raises `Overloaded` if there is no
        room for it. A single answer may have any size. `lose` is called if another caller gets the
        room of the request or of its answer.

        Raises:
            Stopping, Overloaded: as `check`.
        """
        self.check(caller)
        with contextlib.ExitStack() as held:
            request = self.requests.take(caller, 1, lose)
            held.callback(request.close)

            def start_answer(size: int) -> None:
                if size > SMALL_ANSWER_BYTES:
                    held.callback(self.answers.take(caller, size, lose).close)
                request.close()

            self.in_progress += 1
            try:
                yield start_answer
            finally:
                self.in_progress -= 1

    @contextlib.contextmanager
    def endable(self, stopping_detail: str) -> Iterator[Ending]:
        """Let what this task does in the context be ended early: by `abort_in_flight`, or to make
        room for others.

        Raises:
            Stopping: the requests in progress are aborted; with the detail.
            Overloaded: another caller got the room of this request.
        """
        if self._aborted:
            raise Stopping(stopping_detail)
        with Ending(stopping_detail) as ending:
            self._endings.add(ending)
            try:
                yield ending
            finally:
                self._endings.discard(ending)

    def abort_in_flight(self) -> None:
        """Abort the requests in progress."""
        self._aborted = True
        for ending in self._endings:
            ending.stop()
