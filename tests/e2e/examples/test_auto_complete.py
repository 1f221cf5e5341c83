"""Models without a complete config.pbtxt in the real Triton."""

import pytest
import requests

from tests.e2e.examples.conftest import consecutive_ports
from tests.unit.triton_backends.graphs import write_model

pytestmark = pytest.mark.e2e
BATCHED = {"input": [("x", "TYPE_FP32", [-1])], "output": [("y", "TYPE_FP32", [-1])]}
UNBATCHED = {
    "max_batch_size": 0,
    "input": [("x", "TYPE_FP32", [-1, -1])],
    "output": [("y", "TYPE_FP32", [-1, -1]), ("n", "TYPE_INT64", [-1])],
}
OPENVINO = 'backend: "openvino" default_model_filename: "model.onnx"'
CONFIGS = {
    "absent": "",
    "minimal": OPENVINO,
    "batched": 'backend: "onnxruntime" max_batch_size: 2',
    "declared": OPENVINO + 'input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]',
    "numbers": 'backend: "onnxruntime"',
}
"""Contents of config.pbtxt by model."""
WITH_COUNT = {"declared", "numbers"}


@pytest.fixture(scope="module")
def triton(serve, tmp_path_factory):
    """Address of a Triton with one graph under several configurations."""
    repository = tmp_path_factory.mktemp("repository")
    for name, config in CONFIGS.items():
        write_model(repository / name, count=name in WITH_COUNT)
        if config:
            (repository / name / "config.pbtxt").write_text(config)
    port = consecutive_ports(3)
    serve("classification", MODEL_REPOSITORY=str(repository), EXAMPLE_OPEN=str(port))
    return f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("model", "backend", "completed"),
    [
        pytest.param("absent", "onnxruntime", {"max_batch_size": 4, **BATCHED}, id="no config.pbtxt"),
        pytest.param("minimal", "openvino", {"max_batch_size": 4, **BATCHED}, id="backend only"),
        pytest.param("batched", "onnxruntime", {"max_batch_size": 2, **BATCHED}, id="batch size"),
        pytest.param("declared", "openvino", UNBATCHED, id="declared inputs"),
        pytest.param("numbers", "onnxruntime", UNBATCHED, id="single numbers per item"),
    ],
)
def test_config_is_completed_from_the_graph(triton, model, backend, completed):
    config = requests.get(f"{triton}/v2/models/{model}/config", timeout=60).json()
    assert config["backend"] == backend
    found = {
        side: [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config[side]]
        for side in ("input", "output")
    }
    assert {"max_batch_size": config["max_batch_size"], **found} == completed
    assert ("dynamic_batching" in config) == (config["max_batch_size"] == 4)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}]}
    answer = requests.post(f"{triton}/v2/models/{model}/infer", json=body, timeout=60).json()
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert outputs["y"] == [2, 4, 6, 8, 10, 12]
