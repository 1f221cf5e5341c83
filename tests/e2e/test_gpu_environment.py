"""The environment of `HARDWARE=gpu` on a machine without a GPU."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import ROOT, serving
from tests.environments import environment
from tests.unit.triton_backends.graphs import config, write_model

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
LOAD = """
import sys, types
triton = sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")
triton.TritonModelException = Exception
sys.path.append("triton_backends/onnxruntime")
from model import TritonPythonModel
_, folder, config = sys.argv
arguments = {"model_instance_kind": "GPU", "model_instance_device_id": "0", "model_version": "1"}
try:
    TritonPythonModel().initialize({"model_config": config, "model_repository": folder, **arguments})
except Exception as error:
    sys.exit(str(error))
"""
"""Program that loads a model on a GPU by the onnxruntime backend, outside Triton."""


@pytest.fixture(scope="module")
def python() -> Path:
    return environment("gpu", "gpu", "client") / "python"


def test_service_answers_a_click(python, builtin_repository, tmp_path):
    models = str(builtin_repository)
    # The environment's Python runs the program of this environment, which imports from its own.
    with serving(
        tmp_path / "log", "service.py:svc", [str(python)], MOBILE_SAM_MODEL_REPOSITORY=models, **NO_GPU
    ) as server:
        found = segmentation(server.post(input_image=as_base64(scene(70)), pos_coords=[[240, 160]], **NPY_ONLY))
        log = server.log.read_text()
    assert found.masks.any()
    assert found.result["engine"] == {"encoder": "onnxruntime f32", "decoder": "onnxruntime f32"}
    assert "ExecutionProvider" not in log


def test_model_for_a_gpu_is_refused_in_two_lines(python, tmp_path):
    write_model(tmp_path)
    command = [python, "-c", LOAD, tmp_path, json.dumps(config())]
    loaded = subprocess.run(command, cwd=ROOT, env=NO_GPU, capture_output=True, text=True, check=False, timeout=60)
    assert (loaded.returncode, loaded.stdout) == (1, "")
    reason, error = (line for line in loaded.stderr.splitlines() if len(line) > len("\033[m"))
    assert "libonnxruntime_providers_cuda.so" in reason
    assert "cannot load CUDAExecutionProvider" in error
