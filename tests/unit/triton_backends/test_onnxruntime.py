"""The Python-based onnxruntime backend, outside of Triton, with real ONNX models."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

SOURCE = Path(__file__).resolve().parents[3] / "triton_backends" / "onnxruntime" / "model.py"


class TritonModelException(Exception):
    pass


class Tensor:
    def __init__(self, name, array):
        self.name, self.array = name, array

    def as_numpy(self):
        return self.array


class Request:
    def __init__(self, *names, **arrays):
        self.names, self.arrays = names, arrays

    def requested_output_names(self):
        return self.names


class Response:
    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name: tensor.array for tensor in output_tensors}
        self.error = error


@pytest.fixture
def backend(monkeypatch):
    """The backend's module, with a stand-in for what exists inside Triton only."""
    utils: Any = types.ModuleType("triton_python_backend_utils")
    utils.TritonModelException = TritonModelException
    utils.TritonError = str
    utils.Tensor = Tensor
    utils.InferenceResponse = Response
    utils.get_input_tensor_by_name = lambda request, name: Tensor(name, request.arrays[name])
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    monkeypatch.syspath_prepend(str(SOURCE.parent))
    monkeypatch.delitem(sys.modules, "graph_model", raising=False)
    module = types.ModuleType("onnxruntime_backend")
    exec(compile(SOURCE.read_text(), SOURCE, "exec"), module.__dict__)
    return module


def write_model(folder: Path) -> None:
    """y = x + x and n = the size of the batch it ran in."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["y"]),
            helper.make_node("Shape", ["x"], ["shape"], end=1),
            helper.make_node("Expand", ["shape", "shape"], ["n"]),
        ],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "W"])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "W"]),
            helper.make_tensor_value_info("n", TensorProto.INT64, ["N"]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "1" / "model.onnx")


def config(batched: bool = True, **fields) -> dict:
    batch = [] if batched else [-1]
    return {
        "max_batch_size": 8 if batched else 0,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [*batch, -1]}],
        "output": [
            {"name": "y", "data_type": "TYPE_FP32", "dims": [*batch, -1]},
            {"name": "n", "data_type": "TYPE_INT64", "dims": batch},
        ],
        **fields,
    }


def load(backend, folder: Path, model_config: dict, kind: str = "CPU"):
    model = backend.TritonPythonModel()
    model.initialize(
        {
            "model_config": json.dumps(model_config),
            "model_repository": str(folder),
            "model_version": "1",
            "model_instance_kind": kind,
            "model_instance_device_id": "0",
        }
    )
    return model


def x(*rows) -> np.ndarray:
    return np.array(rows, np.float32)


def test_one_request_is_answered(backend, tmp_path):
    write_model(tmp_path)
    (answer,) = load(backend, tmp_path, config()).execute([Request("y", x=x([1, 2]))])
    assert answer.outputs["y"].tolist() == [[2, 4]]
    assert set(answer.outputs) == {"y"}


def test_requests_that_come_together_run_as_one_batch(backend, tmp_path):
    write_model(tmp_path)
    requests = [Request("y", "n", x=x([1, 1])), Request("y", "n", x=x([2, 2], [3, 3])), Request("n", x=x([4, 4]))]
    answers = load(backend, tmp_path, config()).execute(requests)
    assert [answer.outputs["n"].tolist() for answer in answers] == [[4], [4, 4], [4]]
    assert answers[1].outputs["y"].tolist() == [[4, 4], [6, 6]]
    assert set(answers[2].outputs) == {"n"}


def test_requests_of_other_shapes_run_apart(backend, tmp_path):
    write_model(tmp_path)
    answers = load(backend, tmp_path, config()).execute([Request("n", x=x([1])), Request("n", x=x([1, 2]))])
    assert [answer.outputs["n"].tolist() for answer in answers] == [[1], [1]]


def test_a_model_without_batching_runs_each_request_alone(backend, tmp_path):
    write_model(tmp_path)
    answers = load(backend, tmp_path, config(batched=False)).execute([Request("n", x=x([1]))] * 2)
    assert [answer.outputs["n"].tolist() for answer in answers] == [[1], [1]]


def test_a_request_that_fails_does_not_touch_the_others(backend, tmp_path):
    write_model(tmp_path)
    wrong = Request("y", x=np.zeros((1, 2, 3), np.float32))
    answers = load(backend, tmp_path, config()).execute([wrong, Request("y", x=x([1]))])
    assert "\n" not in answers[0].error
    assert answers[1].outputs["y"].tolist() == [[2]]


def test_a_missing_file_is_one_line_that_says_what_writes_it(backend, tmp_path):
    with pytest.raises(TritonModelException, match=r"model\.onnx: no such file; `make weights` writes it$"):
        load(backend, tmp_path, config())


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07" * 100])
def test_a_bad_file_is_one_line(backend, tmp_path, content):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").write_bytes(content)
    with pytest.raises(TritonModelException) as caught:
        load(backend, tmp_path, config())
    assert "model.onnx: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_does_not_fit_the_graph_is_an_error(backend, tmp_path):
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match=r"outputs are .*config.pbtxt declares"):
        load(backend, tmp_path, config(output=[{"name": "y", "data_type": "TYPE_FP16", "dims": [-1]}]))


def test_another_file_name_is_honoured(backend, tmp_path):
    write_model(tmp_path)
    (tmp_path / "1" / "model.onnx").rename(tmp_path / "1" / "other.onnx")
    load(backend, tmp_path, config(default_model_filename="other.onnx"))


def test_threads_and_execution_mode_are_those_of_the_config(backend):
    parameters = {
        "intra_op_thread_count": {"string_value": "3"},
        "inter_op_thread_count": {"string_value": "2"},
        "execution_mode": {"string_value": "1"},
    }
    options = backend.session_options({"parameters": parameters})
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode == backend.ort.ExecutionMode.ORT_PARALLEL


def test_a_gpu_instance_without_a_gpu_build_is_an_error_not_a_slow_model(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(backend.ort, "get_available_providers", lambda: ["CPUExecutionProvider"])
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match=r"asks for CUDAExecutionProvider \(GPU instance\)"):
        load(backend, tmp_path, config(), kind="GPU")


def test_gpu_options_and_accelerators_become_providers(backend, monkeypatch):
    names = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "OpenVINOExecutionProvider"]
    monkeypatch.setattr(backend.ort, "get_available_providers", lambda: names)
    accelerator = {
        "name": "tensorrt",
        "parameters": {"precision_mode": "FP16", "max_workspace_size_bytes": "1000"},
    }
    gpu = {
        "parameters": {
            "cudnn_conv_algo_search": {"string_value": "1"},
            "gpu_mem_limit": {"string_value": "5000"},
            "arena_extend_strategy": {"string_value": "1"},
        },
        "optimization": {"execution_accelerators": {"gpu_execution_accelerator": [accelerator]}},
    }
    assert backend.execution_providers(gpu, "GPU", 2) == [
        (
            "TensorrtExecutionProvider",
            {"device_id": "2", "trt_fp16_enable": "1", "trt_max_workspace_size": "1000"},
        ),
        (
            "CUDAExecutionProvider",
            {
                "device_id": "2",
                "cudnn_conv_algo_search": "HEURISTIC",
                "gpu_mem_limit": "5000",
                "arena_extend_strategy": "kSameAsRequested",
            },
        ),
        ("CPUExecutionProvider", {}),
    ]
    cpu = {"optimization": {"execution_accelerators": {"cpu_execution_accelerator": [{"name": "openvino"}]}}}
    assert backend.execution_providers(cpu, "CPU", 0)[0] == ("OpenVINOExecutionProvider", {})


def test_an_unknown_accelerator_is_refused_by_name(backend):
    config_with = {"optimization": {"execution_accelerators": {"cpu_execution_accelerator": [{"name": "magic"}]}}}
    with pytest.raises(TritonModelException, match="unknown execution accelerator 'magic', expected 'openvino'"):
        backend.execution_providers(config_with, "CPU", 0)
