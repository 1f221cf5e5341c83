"""Simulated replicas against queueing theory."""

from __future__ import annotations

import random
import statistics

import pytest

from benchmarks.load import even, poisson
from benchmarks.replicas import KNOWN, MAX_REQUESTS, NEW, Work, least_busy, random_replica, simulate

ONE_CORE = Work(1.0, 1.0)
WORKS = {KNOWN: ONE_CORE, NEW: ONE_CORE}


def run(times, works=WORKS, *, share=0.0, count=1, cores=1, balancer=least_busy):
    return simulate(works, times, share, count=count, cores=cores, balancer=balancer, seed=1)


def test_requests_that_do_not_overlap_take_the_idle_latency():
    result = run(even(0.5, 100))
    assert result.seconds[KNOWN] == pytest.approx([1.0] * 90)


def test_request_that_can_use_more_cores_is_faster():
    works = {KNOWN: Work(1.0, 0.5), NEW: ONE_CORE}
    assert run(even(0.5, 100), works, cores=2).seconds[KNOWN] == pytest.approx([0.5] * 90)


def test_two_requests_share_a_core():
    # The second arrives halfway through the first; both then run at half speed until the first is done.
    assert run([10.0, 10.5]).seconds[KNOWN] == pytest.approx([1.5, 1.5])


def test_third_request_of_a_kind_waits_for_the_first():
    result = run([10.0, 10.0, 10.0], cores=2)
    assert sorted(result.seconds[KNOWN]) == pytest.approx([1.0, 1.0, 2.0])


def test_clicks_on_known_images_do_not_queue_behind_new_ones():
    works = {KNOWN: Work(0.01, 0.01), NEW: Work(10.0, 10.0)}
    result = run(poisson(0.05, 2000, seed=3), works, share=0.5, cores=4)
    assert max(result.seconds[KNOWN]) < 0.1
    assert statistics.median(result.seconds[NEW]) >= 10.0


def test_shared_core_latency_agrees_with_theory():
    # Processor sharing takes 1 / (1 - load) on average; first come, first served takes load / (2 (1 - load)) on top of
    # the work. Sharing between two with a queue lies between them.
    seconds = run(poisson(0.7, 60_000, seed=1)).seconds[KNOWN]
    assert 1 + 0.7 / 0.6 < statistics.mean(seconds) < 1 / 0.3


@pytest.mark.parametrize("share", [0.0, 0.3], ids=["one kind", "both kinds"])
def test_requests_beyond_the_limit_are_refused_and_all_others_answered(share):
    result = run(even(100.0, 1000), share=share)
    answered = sum(map(len, result.seconds.values()))
    assert result.arrived == 900
    assert 0 < result.refused < result.arrived
    assert answered + result.refused == result.arrived
    assert max(max(seconds, default=0) for seconds in result.seconds.values()) < MAX_REQUESTS + 2


def test_least_busy_replica_is_faster_than_a_random_one():
    times = poisson(0.8 * 10, 20_000, seed=2)
    least, anyone = (
        run(times, count=10, balancer=balancer).seconds[KNOWN] for balancer in (least_busy, random_replica)
    )
    assert statistics.mean(least) < 0.7 * statistics.mean(anyone)


def test_random_work_keeps_the_mean():
    work = Work(0.04, 0.02, 0.5)
    source = random.Random(0)
    assert statistics.mean(work.draw(source) for _ in range(50_000)) == pytest.approx(0.04, rel=0.02)
