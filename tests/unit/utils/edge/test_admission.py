"""What requests in progress hold, and how they are ended early."""

import asyncio
import contextlib
import math
import time

import pytest

from utils.edge.admission import SMALL_ANSWER_BYTES, Admission
from utils.errors import Overloaded, Stopping


@contextlib.contextmanager
def slots(admission: Admission, caller: str, count: int):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(admission.slot(caller)) for _ in range(count)]


def test_callers_have_shares_of_the_slots():
    admission = Admission(8, 0)
    with slots(admission, "a", 6):
        with pytest.raises(
            Overloaded, match="requests in progress: a caller's share is 6, this one has 6"
        ):
            admission.check("a")
        with slots(admission, "b", 2):
            admission.check("c")
            with pytest.raises(Overloaded, match="share beside 1 other caller is 3"):
                admission.check("a")
    admission.check("a")
    assert not admission.requests.held


def test_stopping_service_accepts_no_request_and_says_how_long_it_waits_for_others(monkeypatch):
    admission = Admission(8, 0)
    admission.check("a")
    assert (admission.stopping, admission.time_left_s()) == (False, math.inf)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    admission.stop(25)
    now += 5
    assert (admission.stopping, admission.time_left_s()) == (True, 20)
    with pytest.raises(Stopping):
        admission.check("a")


@pytest.mark.parametrize(
    ("others", "at_once"),
    [
        pytest.param(1, 12, id="one"),
        pytest.param(4, 6, id="few"),
        pytest.param(16, 6, id="sixteen"),
        pytest.param(31, 6, id="many"),
        pytest.param(47, 4, id="more"),
        pytest.param(191, 1, id="too many"),
    ],
)
def test_newcomer_has_several_requests_at_once_beside_a_crowd_that_takes_all_it_can(
    others, at_once
):
    admission = Admission(32, 0)
    with contextlib.ExitStack() as crowd:
        for number in range(30 * others):
            with contextlib.suppress(Overloaded):
                crowd.enter_context(admission.slot(f"attacker {number % others}"))
        with slots(admission, "newcomer", at_once):
            assert admission.requests.held["newcomer"] == at_once
            with pytest.raises(Overloaded, match="share beside"):
                admission.check("newcomer")
    assert not admission.requests.held


def test_request_no_longer_counts_once_its_answer_starts():
    admission = Admission(4, 0, 4 * SMALL_ANSWER_BYTES)
    with slots(admission, "a", 3) as (first, second, third):
        with pytest.raises(Overloaded):
            admission.check("a")
        first(SMALL_ANSWER_BYTES)
        admission.check("a")
        second(2 * SMALL_ANSWER_BYTES)
        with pytest.raises(Overloaded, match="answers that wait to be read"):
            third(2 * SMALL_ANSWER_BYTES)
        assert admission.in_progress == 3
        assert (admission.requests.held, admission.answers.held) == (
            {"a": 1},
            {"a": 2 * SMALL_ANSWER_BYTES},
        )
    assert (admission.in_progress, admission.requests.held, admission.answers.held) == (0, {}, {})


class Held:
    """Requests of a caller with a slot, until they are ended."""

    def __init__(self, admission: Admission) -> None:
        self.admission, self.ended = admission, list[str]()

    async def hold(self, caller: str) -> None:
        try:
            with (
                self.admission.endable("stopped") as ending,
                self.admission.slot(caller, ending.lose),
            ):
                await asyncio.Event().wait()
        except (Overloaded, Stopping) as error:
            self.ended.append(f"{caller}: {error.detail}")
            await asyncio.sleep(0.001)  # another end no longer reaches the request


async def test_newcomer_ends_the_oldest_request_of_the_caller_with_most():
    held = Held(Admission(4, 0))
    tasks = [asyncio.create_task(held.hold(caller)) for caller in "aaabc"]
    await tasks[0]
    assert held.ended == [
        "a: this request was ended because other callers needed its room; retry later"
    ]
    assert held.admission.requests.held == {"a": 2, "b": 1, "c": 1}
    assert not any(task.done() for task in tasks[1:])
    held.admission.abort_in_flight()
    await asyncio.gather(*tasks)
    assert sorted(held.ended[1:]) == ["a: stopped", "a: stopped", "b: stopped", "c: stopped"]
    with pytest.raises(Stopping), held.admission.endable("stopped"):
        pytest.fail("let in")
