"""Where the decoder runs: in the orchestrator's process, or in Triton."""

import sys
import types

import pytest

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
        return local_decoder(config, tmp_path, version)

    return made


@pytest.mark.parametrize("config", [OPENVINO, ONNXRUNTIME], ids=["openvino", "onnxruntime"])
def test_decoder_runs_in_the_orchestrators_process_if_its_backend_is_ours(decoder_of, config):
    assert [answer.tolist() for answer in decoder_of(config).run({"x": x([1, 2])}, ["y"])] == [[[2, 4]]]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param((OPENVINO, "onnxruntime"), id="NVIDIA's backend"),
        pytest.param(({},), id="a GPU"),
        pytest.param((OPENVINO, BOTH, "4"), id="models of a bucket"),
    ],
)
def test_decoder_runs_in_triton_otherwise(decoder_of, case):
    assert decoder_of(*case) is None
