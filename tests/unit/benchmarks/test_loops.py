"""Closed loop's rounds, open loop's ideal queue, and the requests of a workload."""

import pytest

from benchmarks.arms import CACHED, COLD, MIXED, ServerArm, is_new
from benchmarks.load import Outcome, Request, poisson
from benchmarks.loops import EVEN, Cell, Cells, queue, schedule, tail
from benchmarks.photo import photo

OURS, OTHER = Cell("ours", COLD), Cell("other", COLD)


class Recorder(ServerArm):
    """Arm whose request body is the image, or its id."""

    def __init__(self, takes_image_ids):
        self.takes_image_ids = takes_image_ids

    def click(self, image, point):
        return Request("/", {}, image if isinstance(image, bytes) else b"id")

    def read(self, body, headers):
        raise NotImplementedError


def test_cells_compare_the_same_rounds():
    cells = Cells()
    for latency, base in ((0.2, 0.1), (0.9, 0.3), (0.4, 0.2)):
        cells.add(OURS, Outcome([latency, latency], 2 * latency, cpu_seconds=0.5))
        cells.add(OTHER, Outcome([base], base, cpu_seconds=0.1))
    assert cells.latency_ratio(OURS, OTHER).median == pytest.approx(2.0)
    assert cells.throughput_ratio(OURS, OTHER).median == pytest.approx(0.5)
    ours, other = ([cell.strip() for cell in row.split("|")[1:-1]] for row in cells.as_table().splitlines()[2:])
    assert (ours[-1], other[-1]) == ("250", "100")


def test_capacity_is_the_highest_throughput_over_numbers_of_callers():
    cells = Cells()
    for concurrency, seconds in ((1, 4.0), (2, 1.0), (8, 2.0)):
        cells.add(Cell("ours", CACHED, concurrency), Outcome([0.1] * 8, seconds))
    cells.add(Cell("other", CACHED, 8), Outcome([0.1] * 8, 0.1))
    assert cells.capacity("ours", CACHED) == 8.0


def test_queued_requests_wait_for_earlier_ones():
    assert queue([0.0, 0.1, 5.0], 1.0) == pytest.approx([1.0, 1.9, 1.0])


def test_even_arrivals_do_not_wait():
    assert queue(schedule(EVEN, 0.7, 1000), 1.0) == pytest.approx([1.0] * 1000)


def test_queue_at_seventy_per_cent_load_agrees_with_theory():
    latencies = queue(poisson(0.7, 200_000, seed=1), 1.0)
    # Pollaczek-Khinchine for equal service times: load / (2 (1 - load)) on top of the work itself.
    assert sum(latencies) / len(latencies) == pytest.approx(1 + 0.7 / 0.6, rel=0.03)
    assert tail(latencies) == pytest.approx(4.3, rel=0.05)


@pytest.mark.parametrize(("workload", "expected"), [(COLD, 7), (CACHED, 0), (MIXED, 2)])
def test_workload_has_its_share_of_new_images(workload, expected):
    bodies = [request.body for request in Recorder(takes_image_ids=True).clicks(workload, 7)]
    new = {body for body in bodies if body != b"id"}
    assert len(new) == 7 - bodies.count(b"id") == sum(is_new(workload, index) for index in range(7)) == expected
    assert photo() not in new


def test_known_image_is_sent_to_a_server_without_image_ids():
    assert Recorder(takes_image_ids=False).clicks(CACHED, 1)[0].body == photo()
