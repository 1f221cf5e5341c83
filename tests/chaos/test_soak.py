"""Growth, as the soak test reports it."""

import pytest

from tests.chaos.scenarios.soak import GOALS, Sample, growth

AMOUNT = 100.0


def samples(
    each_minute: float = 0.0, processes: tuple[str, ...] = ("worker", "worker", "worker")
) -> list[Sample]:
    """Return a sample per minute, of what grows by this much and of a process with one of these
    names.
    """
    return [
        Sample(
            minute=float(minute),
            held=dict.fromkeys(GOALS, AMOUNT + each_minute * minute),
            processes={process: AMOUNT + each_minute * minute, "triton": AMOUNT},
            processor_s=30.0 * minute,
        )
        for minute, process in enumerate(processes)
    ]


def missed(found: list[Sample]) -> set[str]:
    return {figure.label.partition(":")[0] for figure in growth("soak", found) if not figure.met}


def test_growth_of_nothing_meets_all_goals():
    assert not missed(samples())


def test_growth_above_its_goal_is_reported_for_the_service_and_for_the_process():
    figures = {
        figure.label.partition(":")[0]: figure
        for figure in growth("soak", samples(each_minute=2.0))
    }
    assert figures["resident MB of worker"].value == pytest.approx(2.0)
    assert figures["resident MB of triton"].value == pytest.approx(0.0)
    assert missed(samples(each_minute=2.0)) == {*GOALS, "resident MB of worker"}


def test_process_that_was_replaced_is_reported():
    found = list(growth("soak", samples(processes=("worker", "worker", "another"))))
    (ended,) = (figure for figure in found if not figure.met)
    assert ended.label == "processes that ended or began (another, worker)"


def test_service_without_load_is_reported():
    idle = [Sample(sample.minute, sample.held, sample.processes, 0.0) for sample in samples()]
    assert missed(idle) == {"processors that the service used"}
