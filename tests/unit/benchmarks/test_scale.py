"""Resources for a load, from measured costs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.costs import Costs
from benchmarks.replicas import KNOWN, NEW, Work
from benchmarks.report import with_blocks

ROOT = Path(__file__).resolve().parents[3]
COSTS = Costs({KNOWN: Work(0.04, 0.02), NEW: Work(0.44, 0.22)}, 3_000.0, {KNOWN: 0.01, NEW: 0.03})


def test_cores_are_work_over_utilisation():
    found = scale.needs(COSTS, 1000, 0.05, 0.5, scale.IMAGE_BYTES)
    assert found.cores == pytest.approx(1000 * (0.95 * 0.04 + 0.05 * 0.44) / 0.5)
    assert found.replicas == 60
    assert found.gpus == 9  # (4 ms per click + 8 ms for one in twenty) / 0.5: 8.8
    assert found.gpu_cores == pytest.approx(1000 * (0.95 * 0.01 + 0.05 * 0.03) / 0.5)


def test_network_and_memory_grow_with_new_images():
    found = scale.needs(COSTS, 1000, 0.05, 0.7, 300_000)
    assert found.in_bytes_per_s == 1000 * scale.REQUEST_BYTES + 50 * 400_000
    assert found.out_bytes_per_s == 3_000_000
    entry = 2 * 2**20 + 300_000
    assert found.redis_bytes == 50 * 1800 * entry
    assert found.redis_bytes_per_s["by caller"] == 50 * entry


def test_random_replicas_fetch_the_image_for_nearly_every_click():
    found = scale.needs(COSTS, 100_000, 0.05, 0.7, 260_000).redis_bytes_per_s
    assert found["any"] == pytest.approx(20 * found["by caller"], rel=0.01)


def test_one_replica_needs_no_redis():
    found = scale.needs(COSTS, 1, 0.05, 0.7, 260_000)
    assert (found.replicas, found.redis_bytes, found.redis_bytes_per_s) == (1, 0.0, {"by caller": 0.0, "any": 0.0})


def test_scale_page_has_all_generated_blocks():
    with_blocks((ROOT / "docs" / "scale.md").read_text(), dict.fromkeys(scale.BLOCKS, ""))


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--new-images-share", "1.5", "expected a number above 0, at most 1, got '1.5'"),
        ("--clicks-per-second", "0", "expected a number above 0, got '0'"),
        ("--clicks-per-second", "nan", "expected a number above 0, got 'nan'"),
        ("--utilisation", "much", "expected a number above 0, at most 1, got 'much'"),
    ],
)
def test_numbers_out_of_range_are_rejected(option, value, expected, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scale", option, value])
    with pytest.raises(SystemExit):
        scale.main()
    assert expected in capsys.readouterr().err


def test_waits_grow_with_utilisation():
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in scale.waits(COSTS, 0.05, 4000).splitlines()[2:]
    ]
    alone = [float(row[5]) for row in rows if row[0] == "1"]
    assert alone[0] < alone[2] < alone[-1]


def test_check_table_compares_the_simulation_with_the_open_loop():
    header, _, row = scale.check_table(scale.MEASURED.read_text()).splitlines()
    assert header.count("simulated") == 2
    assert all(float(cell) > 0 for cell in row.strip("|").split("|"))
