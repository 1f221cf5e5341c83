"""Options of the Python-based onnxruntime backend from config.pbtxt."""

from unittest.mock import Mock

import onnxruntime
import pytest

from tests.unit.triton_backends.graphs import (
    TritonModelException,
    config,
    load,
    parameters,
    write_model,
)
from triton_backends.common import onnxruntime_engine


@pytest.fixture
def backend(load_backend):
    return load_backend("onnxruntime")


def test_session_options_are_taken_from_the_parameters():
    given = {"intra_op_thread_count": "3", "inter_op_thread_count": "2", "execution_mode": "1"}
    options = onnxruntime_engine.session_options(given)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL


def test_gpu_instance_without_a_gpu_build_is_an_error(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(backend.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    write_model(tmp_path)
    with pytest.raises(
        TritonModelException, match=r"asks for CUDAExecutionProvider \(GPU instance\)"
    ):
        load(backend, tmp_path, config(), kind="GPU")


@pytest.mark.filterwarnings("ignore:Specified provider")
def test_gpu_instance_without_the_libraries_of_cuda_is_an_error(backend, tmp_path, monkeypatch):
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(backend.ort, "get_available_providers", lambda: names)
    monkeypatch.setattr(onnxruntime, "preload_dlls", preload := Mock())
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match="cannot load CUDAExecutionProvider"):
        load(backend, tmp_path, config(), kind="GPU")
    preload.assert_called_once_with()  # from the packages of CUDA
    load(backend, tmp_path, config())
    preload.assert_called_once_with()


def test_gpu_options_and_accelerators_become_providers(backend, monkeypatch):
    names = ["CUDAExecutionProvider", "OpenVINOExecutionProvider"]
    monkeypatch.setattr(backend.ort, "get_available_providers", lambda: names)
    gpu = parameters(
        cudnn_conv_algo_search="1", gpu_mem_limit="5000", arena_extend_strategy="1", use_tf32="0"
    )
    cuda = {
        "cudnn_conv_algo_search": "HEURISTIC",
        "gpu_mem_limit": "5000",
        "arena_extend_strategy": "kSameAsRequested",
    }
    cuda["use_tf32"] = "0"
    assert backend.execution_providers(gpu, "GPU", 2) == [
        ("CUDAExecutionProvider", {"device_id": "2", **cuda}),
        ("CPUExecutionProvider", {}),
    ]
    cpu = {
        "optimization": {
            "execution_accelerators": {"cpu_execution_accelerator": [{"name": "openvino"}]}
        }
    }
    assert backend.execution_providers(cpu, "CPU", 0)[0] == ("OpenVINOExecutionProvider", {})


@pytest.mark.parametrize(("device", "name"), [("cpu", "magic"), ("gpu", "tensorrt")])
def test_unknown_accelerator_is_an_error(backend, device, name):
    accelerators = {f"{device}_execution_accelerator": [{"name": name}]}
    config_with = {"optimization": {"execution_accelerators": accelerators}}
    with pytest.raises(
        ValueError, match=f"unknown execution accelerator '{name}', expected 'openvino'"
    ):
        backend.execution_providers(config_with, "CPU", 0)
