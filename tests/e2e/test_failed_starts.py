"""A start that cannot succeed ends with status 1 and one line that says why."""

import shutil
import socket

import pytest

from benchmarks.fleet import SMALL
from harness.server import serve_expecting_failure
from tests.services import write_broken_encoder

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


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
        pytest.param(
            "MODEL_REPOSITORY",
            "{folder}",
            "`make weights` writes it",
            id="repository without models",
        ),
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
    settings = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
        "MOBILE_SAM_CACHE_DIR": str(tmp_path),
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = last_line(port=port, **settings)
    assert (
        line
        == f"error: port {port} of 127.0.0.1 is in use: stop the program there or choose another"
        " port"
    )


def test_start_with_an_encoder_that_ignores_the_image_ends_with_one_line(
    builtin_repository, tmp_path
):
    repository = tmp_path / "model_repository"
    shutil.copytree(builtin_repository, repository)
    write_broken_encoder(repository, 1)
    line = last_line(
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_CACHE_DIR=str(tmp_path / "cache"),
        **SMALL,
    )
    assert (
        "mobile_sam_encoder returned the same embedding for two different images (decoder " in line
    )
    assert "set MOBILE_SAM_ENGINE to openvino or onnxruntime" in line
