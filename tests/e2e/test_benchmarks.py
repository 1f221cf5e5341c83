"""Short runs of the benchmarks; their figures are not judged, because the machine may be busy."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import bench, beside_graphs, capacity, compare, gate, quality, regions, scale
from benchmarks.beside_graphs import Load
from benchmarks.engines import ONNX_RUNTIME, OPENVINO_F32
from benchmarks.objects import LabelledObject, read_objects
from benchmarks.servers import CACHED, COLD, EVERYTHING, OURS, WITHOUT_TRITON
from harness.load import client_process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def labelled(tmp_path: Path) -> LabelledObject:
    """Return a square as an object of a folder."""
    mask = np.zeros((240, 260), np.uint8)
    mask[50:150, 50:150] = 7
    Image.fromarray(mask).save(tmp_path / "mask.png")
    Image.fromarray(np.repeat(mask[..., None] * 30, 3, axis=2)).save(tmp_path / "a.png")
    entry = (
        '{"image": "a.png", "mask": "mask.png", "label": 7, "point": [100, 100], "box": [50, 50,'
        " 150, 150]}"
    )
    (tmp_path / "objects.json").write_text(f"[{entry}]")
    (found,) = read_objects(tmp_path)
    return found


def test_bench_compares_the_service_with_the_raw_model_and_itself_without_triton():
    with client_process() as client:
        closed = bench.measure("builtin", client, rounds=1, only=CACHED)[bench.CLOSED_LOOP]
    assert {OURS, WITHOUT_TRITON} < {row.split("|")[2].strip() for row in closed.splitlines()}


def test_compare_measures_another_revision_beside_this_checkout(monkeypatch):
    monkeypatch.setattr(compare, "REQUESTS", dict.fromkeys(compare.REQUESTS, 1))
    with compare.checked_out("HEAD") as baseline, client_process() as client:
        figures = compare.measure(baseline, "builtin", client, rounds=1)
    workloads = [row.split("|")[1].strip() for row in figures.splitlines()[2:]]
    assert workloads == [workload for workload, _ in compare.REQUESTS]


def test_time_beside_the_graphs_is_compared_with_another_revision():
    load = Load({COLD: 2, CACHED: 2, EVERYTHING: 1}, rounds=1, points_per_side=4, idle_s=1.0)
    with compare.checked_out("HEAD") as baseline, client_process() as client:
        table = beside_graphs.measure("builtin", client, baseline, load)
    assert [row for row in beside_graphs.ROWS.values() if f"| {row} " not in table] == []
    assert "Stand-ins answer for the networks." in table


def test_capacity_measures_what_the_model_computes_with(builtin_server, monkeypatch):
    monkeypatch.setattr(capacity, "IMAGES", 2)
    monkeypatch.setattr(capacity, "IDLE_S", 0.1)
    figures = capacity.measure(builtin_server)
    assert figures.keys() == capacity.FIGURES["builtin"].keys() - {"source"}
    assert figures["embedding_bytes"] > 2 * 64 * 64 * 256


def test_quality_scores_all_kinds_of_prompts(builtin_server, labelled):
    score = quality.measure(builtin_server.url, labelled)
    assert len(score.after) >= quality.CLICKS
    assert {"1 click", "box"} < score.iou.keys()


def test_masks_in_regions_are_scored_by_size(builtin_server, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(regions, "MOSAICS", (1, 5))
    scores = regions.measure_all(builtin_server.url, [labelled], tmp_path)
    assert {at: np.shape(found) for at, found in scores.items()} == {(0, 5): (1, 9), (2, 1): (1, 9)}


def test_gate_compares_the_engines_of_this_machine(builtin_repository, labelled):
    rows, keeping = gate.compare("builtin", builtin_repository, [labelled])
    assert {row[1] for row in rows} >= {ONNX_RUNTIME, OPENVINO_F32}
    assert gate.BASELINE in keeping


def test_scale_measures_replicas_while_one_is_killed(tmp_path):
    plan = {"replicas": 2, "annotators": 6, "images": 12, "image_s": 1, "clicks_per_minute": 120}
    plan |= {
        "steady_s": 3,
        "quiet_s": 2,
        "fault_s": 2,
        "requests_per_second": 100,
        "requests_per_minute": 1000,
    }
    found = scale.measure(plan, tmp_path, ["kill"])
    assert [row[0] for row in found.rows][::3] == [
        "encodes per image, by image, Redis",
        "kill -9 of a replica",
    ]
    calls = [call for load in found.loads for call in load.calls]
    assert {call.weights for call in calls if not call.lost} == {"builtin"}
