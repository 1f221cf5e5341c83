"""Calls of the encoder and the decoder: where the decoder runs, and what is copied; and the log."""

import sys
import types
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest

from orchestrator.images import Frame
from tests.unit.triton_backends.graphs import write_model, x

OPENVINO = {"decoder_backend": "openvino", "INFERENCE_NUM_THREADS": "1"}
ONNXRUNTIME = {"decoder_backend": "onnxruntime", "intra_op_thread_count": "1"}
BOTH = "onnxruntime openvino"


@pytest.fixture
def decoder_of(monkeypatch, tmp_path):
    """Function that returns the decoder of a process; the repository has version 3."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", types.ModuleType("stand-in"))
    from orchestrator.triton_io import local_decoder

    write_model(tmp_path / "mobile_sam_decoder", version="3")

    def made(config: dict[str, str], python_backends: str = BOTH, version: str = "3"):
        monkeypatch.setenv("MOBILE_SAM_PYTHON_BACKENDS", python_backends)
        args = {"model_version": version, "model_instance_kind": "CPU"}
        return local_decoder(config, tmp_path, args)

    return made


@pytest.mark.parametrize("config", [OPENVINO, ONNXRUNTIME], ids=["openvino", "onnxruntime"])
def test_decoder_runs_in_the_orchestrators_process_if_its_backend_is_ours(decoder_of, config):
    assert [answer.tolist() for answer in decoder_of(config).run({"x": x([1, 2])}, ["y"])] == [
        [[2, 4]]
    ]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param((OPENVINO, "onnxruntime"), id="NVIDIA's backend"),
        pytest.param(({},), id="a small GPU"),
        pytest.param(({**ONNXRUNTIME, "decoder_file": "gpu.onnx"},), id="no such file"),
        pytest.param((OPENVINO, BOTH, "4"), id="models of a bucket"),
    ],
)
def test_decoder_runs_in_triton_otherwise(decoder_of, case):
    assert decoder_of(*case) is None


def test_decoder_of_a_gpu_runs_on_the_device_of_the_process(monkeypatch, tmp_path, triton_io):
    write_model(tmp_path / "mobile_sam_decoder", version="3")
    made = Mock()
    monkeypatch.setattr("triton_backends.common.onnxruntime_engine.Engine", made)
    monkeypatch.setenv("MOBILE_SAM_PYTHON_BACKENDS", BOTH)
    parameters = {"decoder_backend": "onnxruntime", "gpu_mem_limit": "7", "use_tf32": "0"}
    args = {
        "model_version": "3",
        "model_instance_kind": "GPU",
        "model_instance_device_id": "2",
    }
    assert triton_io.local_decoder(parameters, tmp_path, args) is made.return_value
    options = {"device_id": "2", "gpu_mem_limit": "7", "use_tf32": "0"}
    path = tmp_path / "mobile_sam_decoder" / "3" / "model.onnx"
    providers = [("CUDAExecutionProvider", options), ("CPUExecutionProvider", {})]
    made.assert_called_once_with(path, parameters, providers)


@pytest.fixture
def triton_io(monkeypatch):
    """The module with a stand-in for Triton's log."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", types.ModuleType("stand-in"))
    from orchestrator import triton_io

    monkeypatch.setattr(triton_io, "pb_utils", Mock())
    monkeypatch.setattr(triton_io._LOG, "_windows", {})
    monkeypatch.setattr(triton_io._LOG, "_clock", lambda: 0.0)
    return triton_io


def test_warnings_that_requests_repeat_are_counted(triton_io):
    for number in range(20):
        triton_io._warn(f"Redis: {number} cannot be used:\n damaged")
    triton_io._warn("embedding cache: a file is removed")
    written = [call.args[0] for call in triton_io.pb_utils.Logger.log_warn.call_args_list]
    assert written == [
        *(f"Redis: {number} cannot be used:\\n damaged" for number in range(5)),
        "embedding cache: a file is removed",
    ]
    triton_io._LOG.summarise_ended(all_windows=True)
    triton_io.pb_utils.Logger.log_error.assert_called_once_with("Redis: 15 more in 0 s")


def test_errors_that_requests_repeat_are_counted(triton_io, monkeypatch):
    model = triton_io.OrchestratorModel()
    model._name = "mobile_sam"
    model.outputs = ()
    model._pipeline = Mock()
    monkeypatch.setattr(triton_io, "ModelRequest", Mock(side_effect=RuntimeError("no memory")))
    model._idle_release = triton_io.IdleMemoryRelease(Mock())
    for _ in range(20):
        model._answer(Mock(**{"request_id.return_value": "1"}))
    lines = [call.args[0] for call in triton_io.pb_utils.Logger.log_error.call_args_list]
    assert lines == ["mobile_sam: RuntimeError: no memory"] * 5
    assert triton_io.pb_utils.TritonError.call_count == 20


def test_new_embedding_goes_to_the_decoder_without_a_copy(triton_io, monkeypatch):
    embedding = np.zeros((1, 4), np.float16)
    own = Mock(**{"as_numpy.return_value": embedding})
    pb_utils = triton_io.pb_utils
    pb_utils.InferenceRequest.return_value.exec.return_value.has_error.return_value = False
    pb_utils.get_output_tensor_by_name.return_value = own
    model = triton_io.OrchestratorModel()
    model._trace, model._encoded = None, {}
    model._pipeline = Mock(identity={"model_version": 1})
    model._layout = Mock(shapes={"image_embeddings": (1, 4)})

    def decoder_input(array: np.ndarray) -> Any:
        model._decode({"image_embeddings": array}, ["scores"])
        (tensor,) = pb_utils.InferenceRequest.call_args.kwargs["inputs"]
        return tensor

    encoded = model._encode(Frame(np.zeros((2, 2, 3), np.uint8), (2, 2), (0, 0, 2, 2)))
    assert decoder_input(encoded["image_embeddings"]) is own
    assert decoder_input(embedding.copy()) is not own  # such as another part's, from the cache
    monkeypatch.setattr(triton_io, "ModelRequest", Mock(side_effect=RuntimeError))
    model._name, model.outputs, model._idle_release = "mobile_sam", (), MagicMock()
    model._answer(Mock(**{"request_id.return_value": "1"}))
    assert decoder_input(embedding) is not own  # shared memory is free after each request
