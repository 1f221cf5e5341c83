"""Comparison with the official predictor and the servers around it."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image
from requests_toolbelt.multipart.decoder import MultipartDecoder

from benchmarks import bench_peers
from benchmarks.arms import OURS
from benchmarks.bench_peers import Results, goals, goals_table, speed
from benchmarks.closed import Cell, Cells
from benchmarks.load import Outcome
from benchmarks.peer_arms import FASTAPI, ISAT, PREDICTOR, Isat, predicting
from benchmarks.service import Server
from benchmarks.workloads import CACHED, COLD

OURS_S = {COLD: 0.1, CACHED: 0.02}


def measured(slower: float) -> Cells:
    """Return two rounds in which the service takes `OURS_S` and every peer takes `slower` times as long."""
    cells = Cells()
    for _ in range(2):
        for cell in bench_peers.PLAN:
            latency = OURS_S[cell.workload] * (1 if cell.arm == OURS else slower)
            cells.add(cell, Outcome([latency] * 4, 4 * latency / cell.concurrency, answer_bytes=4), 0.1)
    return cells


@pytest.mark.parametrize("callers", [1, 8])
def test_speed_is_a_multiple_of_the_peer(callers):
    assert speed(measured(3.0), Cell(FASTAPI, COLD, callers)).median == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("slower", "bf16", "met"),
    [
        pytest.param(4.6, True, [True, True, True, True], id="all"),
        pytest.param(4.4, True, [False, True, True, True], id="cold with bfloat16"),
        pytest.param(2.1, False, [True, False, False, False], id="cold without bfloat16"),
        pytest.param(1.9, False, [False, False, False, False], id="none"),
    ],
)
def test_goals_depend_on_bfloat16(slower, bf16, met):
    found = goals(measured(slower), bf16)
    assert [goal.met for goal in found] == met
    assert goals_table(found).count("missed: ") == met.count(False)


def test_arms_table_leaves_cells_empty_where_an_arm_has_no_measurement():
    memory = dict.fromkeys((PREDICTOR, OURS, FASTAPI, ISAT), 2_000_000_000)
    ious = {OURS: [1.0, 0.98], FASTAPI: [1.0], ISAT: [0.5]}
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in Results("about", ious, measured(5.0), memory, True).arms_table().splitlines()[2:]
    ]
    assert [row[0] for row in rows] == list(memory)
    filled = {row[0]: [bool(cell) for cell in row[1:5]] for row in rows}
    assert filled == {
        PREDICTOR: [True, True, False, False],
        OURS: [True, True, True, True],
        FASTAPI: [True, True, True, True],
        ISAT: [True, False, False, False],
    }
    assert [row[6] for row in rows] == ["", "0.990 (0.980)", "1.000 (1.000)", "0.500 (0.500)"]


def test_isat_request_holds_pixels_and_their_shape():
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    request = Isat(ISAT, Server(psutil.Process(), 1)).click(file.getvalue(), (1, 1))
    parts = MultipartDecoder(request.body, request.headers["Content-Type"]).parts
    assert [part.content for part in parts] == [pixels.tobytes(), b"4,6,3", b"uint8"]
    assert request.path == "/api/encode"


def test_error_of_a_predictor_that_exited_has_its_log(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such checkpoint >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(RuntimeError, match="no such checkpoint"), predicting(python, Path("nowhere.pt")) as predictor:
        predictor.about()
