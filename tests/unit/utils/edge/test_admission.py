"""Limits on requests in progress and their bytes."""

import contextlib

import pytest

from utils.api.errors import Overloaded
from utils.edge.admission import MAX_PROMPT_REFUSALS, Admission, RefusalThrottle
from utils.edge.turns import ACTIVE_S


@contextlib.contextmanager
def slots(admission: Admission, caller: str, count: int):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(admission.slot(caller)) for _ in range(count)]


def test_one_caller_gets_three_quarters_of_the_slots():
    admission = Admission(8, 0)
    with slots(admission, "a", 6):
        with pytest.raises(Overloaded, match=r"too many of your requests in progress \(6\)"):
            admission.check("a")
        with slots(admission, "b", 2), pytest.raises(Overloaded, match=r"too many requests in progress \(8\)"):
            admission.check("b")
        admission.check("b")
    admission.check("a")


def test_any_caller_may_take_the_only_slot():
    admission = Admission(1, 0)
    admission.check("a")
    with slots(admission, "a", 1), pytest.raises(Overloaded):
        admission.check("a")


def test_request_no_longer_counts_once_its_answer_starts():
    admission = Admission(4, 0, 1000)
    with slots(admission, "a", 3) as (first, *_):
        with pytest.raises(Overloaded):
            admission.check("a")
        first(100)
        admission.check("a")
        assert admission.in_progress == 3
    assert admission.in_progress == 0
    with slots(admission, "a", 3):
        pass


def test_one_caller_gets_three_quarters_of_the_body_bytes():
    admission = Admission(9, 1000)
    admission.count_body_bytes(750, "a")
    with pytest.raises(Overloaded):
        admission.count_body_bytes(1, "a")
    admission.count_body_bytes(250, "b")
    with pytest.raises(Overloaded, match=r"request bodies take too much memory \(1000 bytes\)"):
        admission.count_body_bytes(1, "c")
    admission.count_body_bytes(-750, "a")
    admission.count_body_bytes(750, "a")


def test_many_refusals_of_one_caller_are_delayed_while_others_are_active():
    now = [100.0]
    throttle = RefusalThrottle(lambda: now[0])
    throttle.note_request("a")
    assert {throttle.delay_s("a") for _ in range(3 * MAX_PROMPT_REFUSALS)} == {0.0}  # it is alone
    throttle.note_request("b")
    assert throttle.delay_s("a") == Overloaded.retry_after
    prompt_then_delayed = [*[0.0] * MAX_PROMPT_REFUSALS, 1.0]
    assert [throttle.delay_s("b") for _ in range(MAX_PROMPT_REFUSALS + 1)] == prompt_then_delayed
    now[0] += 1
    assert [throttle.delay_s("a") for _ in range(MAX_PROMPT_REFUSALS + 1)] == prompt_then_delayed
    now[0] += ACTIVE_S + 1
    throttle.note_request("a")
    assert {throttle.delay_s("a") for _ in range(3 * MAX_PROMPT_REFUSALS)} == {0.0}
