"""States of queued images in any order of jobs, encodes, cancellations, kills and jumps of the
clock.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from utils.background import queue as queues
from utils.background.queue import EncodeQueue

CALLERS = ("a", "b", "c")


def log_changes(file: Path) -> None:
    """Have the database keep each change of an image's state, whichever process makes it."""
    with closing(sqlite3.connect(file)) as db:
        db.executescript(
            "CREATE TABLE changes (image, state);"
            "CREATE TRIGGER log AFTER UPDATE OF state ON images WHEN old.state != new.state "
            "BEGIN INSERT INTO changes VALUES (new.id, new.state); END;"
        )


def ends_of(file: Path) -> dict[int, list[str]]:
    """Return each image's states after `queued`, in their order."""
    with closing(sqlite3.connect(file)) as db:
        ends: dict[int, list[str]] = {
            number: [] for (number,) in db.execute("SELECT id FROM images")
        }
        for number, state in db.execute("SELECT image, state FROM changes ORDER BY rowid"):
            ends[number].append(state)
    return ends


@dataclass
class Image:
    """What is expected of an image."""

    state: str = "queued"
    kept: bool = True
    """Whether the file is in the cache."""
    begins_at: float = 0.0
    """Time from which the process that keeps the file is taken for gone."""


@dataclass
class Worker:
    """An API worker: what it holds in memory, which a kill takes away."""

    keeping: list[int] = field(default_factory=list)
    encoding: list[int] = field(default_factory=list)


class QueuedImages(RuleBasedStateMachine):
    """Two API workers with one queue."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.file = Path(self._folder.name) / "queue.sqlite3"
        self.queue = EncodeQueue(self.file, 2**40, 0)
        self.images: dict[int, Image] = {}
        self.jobs: dict[str, list[int]] = {}
        self.workers = [Worker(), Worker()]
        self.monotonic, self.wall = 1000.0, 1_800_000_000.0

    def teardown(self) -> None:
        """Remove the folder."""
        with self._folder:
            self.end_all()

    def end_all(self) -> None:
        """Encode what is left for as long as a file may be waited for, and check that each image
        ended exactly once.
        """
        if not self.images:
            return
        for _ in range(3):  # an image may begin to wait once more when the machine starts again
            self.monotonic += queues.MAX_KEEP_S
            with self.clocks():
                while row := self.queue.begin(""):
                    self.queue.record(row["id"], "done")
        ends = {number: len(states) for number, states in ends_of(self.file).items()}
        assert ends == dict.fromkeys(self.images, 1)

    @contextmanager
    def clocks(self) -> Iterator[None]:
        with patch("time.time", lambda: self.wall), patch("time.monotonic", lambda: self.monotonic):
            yield

    @rule(
        caller=st.sampled_from(CALLERS),
        sizes=st.lists(st.sampled_from([0, 9]), min_size=1, max_size=4),
    )
    def add(self, caller: str, sizes: list[int]) -> None:
        with self.clocks():
            job, numbers = self.queue.add("", caller, None, [(f"{size}", size) for size in sizes])
        if not self.images:
            log_changes(self.file)
        self.jobs[job] = numbers
        for number, size in zip(numbers, sizes, strict=True):
            self.images[number] = Image(kept=not size, begins_at=self.monotonic + queues.MAX_KEEP_S)
        self.workers[0].keeping += [
            number for number, size in zip(numbers, sizes, strict=True) if size
        ]

    @precondition(lambda self: self.workers[0].keeping)
    @rule(usable=st.booleans())
    def keep_a_file(self, usable: bool) -> None:
        number = self.workers[0].keeping.pop(0)
        self.queue.record(number, "queued" if usable else "failed", None if usable else b"{}")
        image = self.images[number]
        if image.state == "queued":
            image.kept, image.state = True, "queued" if usable else "failed"

    @rule(worker=st.sampled_from([0, 1]), after=st.sampled_from(["", *CALLERS]))
    def begin(self, worker: int, after: str) -> None:
        with self.clocks():
            row = self.queue.begin(after) if self.images else None
        waiting = {
            number
            for number, image in self.images.items()
            if image.state == "queued"
            and (image.kept or not 0 < image.begins_at - self.monotonic <= queues.MAX_KEEP_S)
        }
        assert (row is None) == (not waiting)
        if row is not None:
            assert row["id"] in waiting
            self.workers[worker].encoding.append(row["id"])

    @rule(
        worker=st.sampled_from([0, 1]),
        state=st.sampled_from(["done", "failed", "fault of the service"]),
    )
    def end(self, worker: int, state: str) -> None:
        encoding = self.workers[worker].encoding
        if not encoding:
            return
        number = encoding.pop()
        if state == "fault of the service":  # nothing is recorded before the last attempt
            return
        self.queue.record(number, state, b"{}" if state == "failed" else None)
        if self.images[number].state == "queued":
            self.images[number].state = state

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), times=st.sampled_from([1, 2]))
    def cancel(self, data: st.DataObject, times: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        answers = [self.queue.job(job, "", cancel=True) for _ in range(times)]
        for number in self.jobs[job]:
            if self.images[number].state == "queued":
                self.images[number].state = "cancelled"
        assert all(answer == answers[0] for answer in answers)
        assert answers[0]["queued"] == 0

    @rule(worker=st.sampled_from([0, 1]))
    def kill(self, worker: int) -> None:
        self.workers[worker] = Worker()
        self.queue = EncodeQueue(self.file, 2**40, 0)

    @rule(seconds=st.sampled_from([3600, -86_400, 300_000_000, -1]))
    def set_the_clock(self, seconds: int) -> None:
        self.wall += seconds

    @rule(seconds=st.sampled_from([1, 300, 601]))
    def time_passes(self, seconds: int) -> None:
        self.wall += seconds
        self.monotonic += seconds

    @rule()
    def start_the_machine_again(self) -> None:
        self.workers = [Worker(), Worker()]
        self.queue = EncodeQueue(self.file, 2**40, 0)
        self.monotonic = 10.0

    @invariant()
    def states_are_as_expected(self) -> None:
        for job, numbers in self.jobs.items():
            found = self.queue.job(job, "")
            assert [image["state"] for image in found["images"]] == [
                self.images[number].state for number in numbers
            ]
            assert sum(found[state] for state in queues.STATES) == len(numbers)


TestQueuedImages = QueuedImages.TestCase
TestQueuedImages.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
