"""Figures over the answers of all scenarios."""

from collections import Counter

from tests.chaos.figures import AnswerKind
from tests.chaos.run import MIN_ANSWERS, NO_FAULTS, OTHER_WEIGHTS, OVERLOADS, SCENARIOS, failures

OK, OVERLOADED, BROKEN = AnswerKind(200, "ok"), AnswerKind(503, "overloaded"), AnswerKind(500, "internal")


def test_failures_ignores_refusals_under_overload():
    met = list(failures({"costly": Counter({OK: MIN_ANSWERS, OVERLOADED: 7}), "fuzz": Counter({OK: 3})}))
    assert [figure.value for figure in met] == [0, MIN_ANSWERS + 10]
    assert all(figure.met for figure in met)
    assert "7 more refused" in met[0].label


def test_failures_counts_500s_and_refusals_without_overload():
    missed, few = failures({"costly": Counter({BROKEN: 2}), "fuzz": Counter({OVERLOADED: 3, OK: 1})})
    assert (missed.value, few.value) == (5, 6)
    assert not missed.met
    assert not few.met


def test_lists_of_scenarios_name_existing_scenarios():
    assert {*NO_FAULTS, *OTHER_WEIGHTS, *OVERLOADS} < set(SCENARIOS)
