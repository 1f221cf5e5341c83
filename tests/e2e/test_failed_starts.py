"""A start that cannot succeed ends with status 1 and one line that says why."""

import shutil
import socket

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.e2e.server import serve_expecting_failure

pytestmark = pytest.mark.e2e


def last_line(**settings) -> str:
    ended = serve_expecting_failure(**settings)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "Could not bind" not in ended.stdout
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        pytest.param("API_KEYS", "me:short", "MOBILE_SAM_API_KEYS", id="invalid setting"),
        pytest.param("MODEL_REPOSITORY", "{folder}", "`make weights` writes it", id="repository without models"),
        pytest.param(
            "CACHE_DIR",
            "{folder}/file",
            "error: cannot write Triton's folder {folder}/file/triton: Not a directory",
            id="cache",
        ),
    ],
)
def test_failed_start_ends_with_one_line(builtin_repository, tmp_path, name, value, message):
    (tmp_path / "file").touch()
    given = {f"MOBILE_SAM_{name}": value.format(folder=tmp_path)}
    line = last_line(**{"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository), **given})
    assert message.format(folder=tmp_path) in line


def test_start_on_a_port_in_use_ends_with_one_line(builtin_repository, tmp_path):
    settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository), "MOBILE_SAM_CACHE_DIR": str(tmp_path)}
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = last_line(port=port, **settings)
    assert line == f"error: port {port} of 127.0.0.1 is in use: stop the program there or choose another port"


def write_broken_encoder(path) -> None:
    """Write an encoder that returns the same embedding for every image."""
    embedding = np.ones((1, 64, 64, 256), np.float16)
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["images"], ["batch"], end=1),
            helper.make_node("Concat", ["batch", "sizes"], ["shape"], axis=0),
            helper.make_node("Expand", ["embedding", "shape"], ["image_embeddings"]),
        ],
        "broken",
        [
            helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", 1024, 1024, 3]),
            helper.make_tensor_value_info("sizes_hw", TensorProto.INT32, ["N", 2]),
        ],
        [helper.make_tensor_value_info("image_embeddings", TensorProto.FLOAT16, ["N", 64, 64, 256])],
        [
            numpy_helper.from_array(embedding, "embedding"),
            numpy_helper.from_array(np.array(embedding.shape[1:]), "sizes"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_start_with_an_encoder_that_ignores_the_image_ends_with_one_line(builtin_repository, tmp_path):
    repository = tmp_path / "model_repository"
    shutil.copytree(builtin_repository, repository)
    write_broken_encoder(repository / "mobile_sam_encoder" / "1" / "model.onnx")
    line = last_line(MOBILE_SAM_MODEL_REPOSITORY=str(repository), MOBILE_SAM_CACHE_DIR=str(tmp_path / "cache"))
    assert "mobile_sam_encoder returned the same embedding for two different images (decoder onnxruntime f32, " in line
    assert "set MOBILE_SAM_ENGINE to openvino or onnxruntime" in line
