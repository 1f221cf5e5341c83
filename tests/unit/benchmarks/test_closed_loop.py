"""Closed loop's rounds, and the requests of a workload."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.closed_loop import Cell, Cells, closed_loop
from benchmarks.photo import photo
from benchmarks.servers import CACHED, COLD, FORM, LARGE, MIXED, ServerArm, Turn, is_new
from harness.load import Request

OURS, OTHER = Cell("ours", COLD), Cell("other", COLD)


class Recorder(ServerArm):
    """Arm whose request body is the image, or its id."""

    def __init__(self, takes_image_ids):
        self.takes_image_ids = takes_image_ids

    def click(self, image, point):
        return Request("/", image if isinstance(image, bytes) else b"id")

    def read(self, answer):
        raise NotImplementedError


def test_cells_compare_the_same_rounds():
    cells = Cells()
    for latency, base in ((0.2, 0.1), (0.9, 0.3), (0.4, 0.2)):
        cells.add(OURS, Turn([latency, latency], 2 * latency, cpu_seconds=0.5))
        cells.add(OTHER, Turn([base], base, cpu_seconds=0.1))
    assert cells.throughput_ratio(OURS, OTHER).median == pytest.approx(0.5)
    ours, other = (
        [cell.strip() for cell in row.split("|")[1:-1]] for row in cells.as_table().splitlines()[2:]
    )
    assert (ours[-1], other[-1]) == ("250", "100")


def test_what_was_measured_is_printed_when_a_turn_fails(capsys):
    turns = [Turn([9.0], 9.0), Turn([0.25, 0.25], 0.5)]

    class FailsLater:
        def turn(self, workload, callers, count, client):
            if not turns:
                raise RuntimeError("no answer in time")
            return turns.pop(0)

    with ThreadPoolExecutor() as client, pytest.raises(RuntimeError, match="no answer in time"):
        closed_loop({"ours": FailsLater()}, {OURS: 2}, client, rounds=2)
    *_, row = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in row.split("|")[1:4]] == ["cold, 1", "ours", "250"]


@pytest.mark.parametrize(
    ("workload", "expected"), [(COLD, 7), (CACHED, 0), (MIXED, 2), (FORM, 7), (LARGE, 7)]
)
def test_workload_has_its_share_of_new_images(workload, expected):
    bodies = [request.body for request in Recorder(takes_image_ids=True).requests_of(workload, 7)]
    new = {body for body in bodies if body != b"id"}
    assert (
        len(new)
        == 7 - bodies.count(b"id")
        == sum(is_new(workload, index) for index in range(7))
        == expected
    )
    assert photo() not in new
