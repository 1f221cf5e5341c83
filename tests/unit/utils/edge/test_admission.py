"""How many requests are worked on at once, and whose."""

from __future__ import annotations

import contextlib

import pytest

from utils.edge.admission import PROMPT_REFUSALS, Admission, Pace
from utils.errors import Overloaded
from utils.turns import ABOUT_S


@contextlib.contextmanager
def places(admission: Admission, caller: str, count: int):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(admission.place(caller)) for _ in range(count)]


def test_one_caller_leaves_a_quarter_of_the_places_to_others():
    admission = Admission(8, 0)
    with places(admission, "a", 6):
        with pytest.raises(Overloaded, match="6 requests of yours are being answered or wait already"):
            admission.check("a")
        with places(admission, "b", 2), pytest.raises(Overloaded, match="8 requests are being answered"):
            admission.check("b")
        admission.check("b")
    admission.check("a")


def test_the_only_place_is_anybodys():
    admission = Admission(1, 0)
    admission.check("a")
    with places(admission, "a", 1), pytest.raises(Overloaded):
        admission.check("a")


def test_a_place_is_free_again_once_its_answer_begins():
    admission = Admission(4, 0, 1000)
    with places(admission, "a", 3) as (first, *_):
        with pytest.raises(Overloaded):
            admission.check("a")
        first.answers(100)
        admission.check("a")
        assert admission.in_progress == 3
    assert admission.in_progress == 0
    with places(admission, "a", 3):
        pass


def test_one_caller_leaves_a_quarter_of_the_bytes_to_others():
    admission = Admission(9, 1000)
    admission.hold(750, "a")
    with pytest.raises(Overloaded):
        admission.hold(1, "a")
    admission.hold(250, "b")
    with pytest.raises(Overloaded, match="bodies of 1000 bytes are being worked on already"):
        admission.hold(1, "c")
    admission.hold(-750, "a")
    admission.hold(750, "a")


def test_refusals_wait_where_one_caller_has_many_while_others_are_about():
    now = [100.0]
    pace = Pace(lambda: now[0])
    pace.asks("a")
    assert {pace.refusal("a") for _ in range(3 * PROMPT_REFUSALS)} == {0.0}  # it is alone
    pace.asks("b")
    assert pace.refusal("a") == Overloaded.retry_after
    assert [pace.refusal("b") for _ in range(PROMPT_REFUSALS + 1)] == [*[0.0] * PROMPT_REFUSALS, 1.0]
    now[0] += 1
    assert [pace.refusal("a") for _ in range(PROMPT_REFUSALS + 1)] == [*[0.0] * PROMPT_REFUSALS, 1.0]
    now[0] += ABOUT_S + 1
    pace.asks("a")
    assert {pace.refusal("a") for _ in range(3 * PROMPT_REFUSALS)} == {0.0}
