"""The environment of `HARDWARE=gpu` on a machine without a GPU."""

import sys

import pytest

from benchmarks import gate, gpu, stats
from benchmarks.gpu_figures import FEW, Effort
from benchmarks.photo import POINTS
from benchmarks.steps import run_steps
from harness import serving
from harness.load import client_process
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.environments import environment

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_service_answers_a_click(builtin_repository, tmp_path):
    python = environment("gpu", "gpu") / "python"
    models = str(builtin_repository)
    # The environment's Python runs the program of this environment, which imports from its own.
    with serving(
        tmp_path / "log",
        "service.py:svc",
        [str(python)],
        MOBILE_SAM_MODEL_REPOSITORY=models,
        **NO_GPU,
    ) as server:
        found = segmentation(
            server.post(input_image=as_base64(scene(70)), pos_coords=[[240, 160]], **NPY_ONLY)
        )
        log = server.log.read_text()
    assert found.masks.any()
    assert found.result["engine"] == {"encoder": "onnxruntime f32", "decoder": "onnxruntime f32"}
    assert "ExecutionProvider" not in log


def test_gpu_check_runs_the_plan_for_a_gpu_on_the_cpu(monkeypatch, tmp_path):
    python = environment("gpu", "gpu") / "python"
    monkeypatch.setattr(sys, "executable", str(python))  # programs of servers lie beside it
    monkeypatch.setattr("benchmarks.gpu.POINTS", POINTS[:1])
    monkeypatch.setattr(gate, "ROUNDS", 1)
    monkeypatch.setattr(stats, "WARM_UP", 0)
    effort = Effort(dict.fromkeys(FEW.requests, 2), rounds=1, points_per_side=4)
    with client_process() as client:
        steps = gpu.Check("builtin", client, on_gpu=False, effort=effort).steps()
        names = ("gate", "figures", "graphs", "stages")
        assert run_steps({name: steps[name] for name in names}, tmp_path)
    figures = (tmp_path / "figures.txt").read_text()
    assert gpu.NO_GPU in figures
    assert figures.count(" met ") + figures.count(" missed ") == 6
