"""The simulated replicas, held to what queueing theory says."""

from __future__ import annotations

import random
import statistics

import pytest

from benchmarks.load import even, poisson
from benchmarks.replicas import KNOWN, NEW, ROOM, Work, any_one, least_busy, simulate

ONE_CORE = Work(1.0, 1.0)
WORKS = {KNOWN: ONE_CORE, NEW: ONE_CORE}


def run(times, works=WORKS, *, share=0.0, count=1, cores=1, balancer=least_busy):
    return simulate(works, times, share, count=count, cores=cores, balancer=balancer, seed=1)


def test_requests_that_come_one_by_one_take_their_time_alone():
    outcome = run(even(0.5, 100))
    assert outcome.seconds[KNOWN] == pytest.approx([1.0] * 90)


def test_request_that_can_use_more_cores_is_quicker():
    works = {KNOWN: Work(1.0, 0.5), NEW: ONE_CORE}
    assert run(even(0.5, 100), works, cores=2).seconds[KNOWN] == pytest.approx([0.5] * 90)


def test_two_requests_share_a_core():
    # The second comes when the first has half of its work left: both are then half as quick, until the first is done.
    assert run([10.0, 10.5]).seconds[KNOWN] == pytest.approx([1.5, 1.5])


def test_third_request_of_a_kind_waits_for_the_first():
    outcome = run([10.0, 10.0, 10.0], cores=2)
    assert sorted(outcome.seconds[KNOWN]) == pytest.approx([1.0, 1.0, 2.0])


def test_clicks_on_known_images_do_not_stand_behind_new_ones():
    works = {KNOWN: Work(0.01, 0.01), NEW: Work(10.0, 10.0)}
    outcome = run(poisson(0.05, 2000, seed=3), works, share=0.5, cores=4)
    assert max(outcome.seconds[KNOWN]) < 0.1
    assert statistics.median(outcome.seconds[NEW]) >= 10.0


def test_a_shared_core_waits_as_theory_says():
    # Equal shares for all who came would take 1 / (1 - load) on average, and first come, first served
    # load / (2 (1 - load)) on top of the work. Shares for two, and a queue, lie between.
    seconds = run(poisson(0.7, 60_000, seed=1)).seconds[KNOWN]
    assert 1 + 0.7 / 0.6 < statistics.mean(seconds) < 1 / 0.3


@pytest.mark.parametrize("share", [0.0, 0.3], ids=["of one kind", "of both"])
def test_what_is_beyond_the_room_is_refused_and_all_else_answered(share):
    outcome = run(even(100.0, 1000), share=share)
    answered = sum(map(len, outcome.seconds.values()))
    assert outcome.came == 900
    assert 0 < outcome.refused < outcome.came
    assert answered + outcome.refused == outcome.came
    assert max(max(seconds, default=0) for seconds in outcome.seconds.values()) < ROOM + 2


def test_the_least_busy_replica_is_quicker_than_any():
    times = poisson(0.8 * 10, 20_000, seed=2)
    least, anyone = (run(times, count=10, balancer=balancer).seconds[KNOWN] for balancer in (least_busy, any_one))
    assert statistics.mean(least) < 0.7 * statistics.mean(anyone)


def test_spread_work_has_the_same_mean():
    work = Work(0.04, 0.02, 0.5)
    source = random.Random(0)
    assert statistics.mean(work.draw(source) for _ in range(50_000)) == pytest.approx(0.04, rel=0.02)
