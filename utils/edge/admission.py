"""Admission control: what requests in progress hold, shared fairly among callers, and how they are ended early."""

import contextlib
from collections.abc import Callable, Iterator

from utils.errors import Stopping, mib
from utils.inference.ending import Ending
from utils.inference.shares import Shares

SMALL_ANSWER_BYTES = 65_536
"""Size up to which answers are not counted: the transport's buffer holds that much of any answer."""
StartAnswer = Callable[[int], None]


class Admission:
    """Requests in progress in one API worker, and the bytes of their bodies and answers."""

    def __init__(self, max_requests: int, max_body_bytes: int, max_answer_bytes: int = 0) -> None:
        """Start without any requests.

        Args:
            max_requests: requests in progress; a request stops counting when its answer begins.
            max_body_bytes: bytes of all bodies together, including those that are still arriving.
            max_answer_bytes: bytes of all answers that are being sent.
        """
        self.requests = Shares(max_requests, "requests in progress")
        self.bodies = Shares(max_body_bytes, "request bodies in memory", mib)
        self.answers = Shares(max_answer_bytes, "answers that wait to be read", mib)
        self._endings: set[Ending] = set()
        self._aborted = False
        self.stopping = False
        """True if new requests are refused because the service stops."""
        self.in_progress = 0

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
    def slot(self, caller: str = "", lose: Callable[[], None] = lambda: None) -> Iterator[StartAnswer]:
        """Hold a slot for one request of a caller, and yield a function that counts its answer in place of the request.

        The function takes the size of the answer in bytes, and raises `Overloaded` if there is no room for it. A single
        answer may have any size. `lose` is called if another caller gets the room of the request or of its answer.

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
        """Let what this task does in the context be ended early: by `abort_in_flight`, or to make room for others.

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
