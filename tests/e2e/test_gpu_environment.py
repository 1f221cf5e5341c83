"""The environment of `HARDWARE=gpu` on a machine without a GPU."""

import sys

import pytest

from benchmarks import gate, gpu, stats
from benchmarks.photo import POINTS
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


def test_gpu_check_runs_the_plan_for_a_gpu_on_the_cpu(monkeypatch):
    python = environment("gpu", "gpu") / "python"
    monkeypatch.setattr(sys, "executable", str(python))  # programs of servers lie beside it
    monkeypatch.setattr(gpu, "REQUESTS", dict.fromkeys(gpu.REQUESTS, 2))
    monkeypatch.setattr(gpu, "ROUNDS", 1)
    monkeypatch.setattr(gpu, "POINTS_PER_SIDE", 4)
    monkeypatch.setattr("benchmarks.gpu.POINTS", POINTS[:1])
    monkeypatch.setattr(gate, "ROUNDS", 1)
    monkeypatch.setattr(stats, "WARM_UP", 0)
    with client_process() as client:
        text, kept = gpu.check("builtin", client, on_gpu=False)
    assert text.startswith(gpu.NO_GPU)
    assert kept
    assert text.count(" met ") + text.count(" missed ") == 4
