"""Counting of the answers of all scenarios together."""

from __future__ import annotations

from collections import Counter

from tests.chaos.figures import Answered
from tests.chaos.run import LEAST_ANSWERS, NO_FAULTS, OTHER_WEIGHTS, OVERLOADS, SCENARIOS, failures

OK, OVERLOADED, BROKEN = Answered(200, "ok"), Answered(503, "overloaded"), Answered(500, "internal")


def test_failures_are_met_by_good_answers_and_refusals_of_an_overload():
    met = list(failures({"costly": Counter({OK: LEAST_ANSWERS, OVERLOADED: 7}), "fuzz": Counter({OK: 3})}))
    assert [figure.value for figure in met] == [0, LEAST_ANSWERS + 10]
    assert all(figure.met for figure in met)
    assert "7 more refused" in met[0].what


def test_failures_count_every_500_and_refusals_where_nothing_was_too_much():
    missed, few = failures({"costly": Counter({BROKEN: 2}), "fuzz": Counter({OVERLOADED: 3, OK: 1})})
    assert (missed.value, few.value) == (5, 6)
    assert not missed.met
    assert not few.met


def test_lists_of_scenarios_name_scenarios_that_are_there():
    assert {*NO_FAULTS, *OTHER_WEIGHTS, *OVERLOADS} < set(SCENARIOS)
