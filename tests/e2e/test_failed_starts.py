"""A start that cannot succeed ends with status 1 and one line that says why."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.server import serve_expecting_failure

pytestmark = pytest.mark.e2e
Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failed")


@pytest.fixture(scope="module")
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def starts(builtin_repository: Path, folder: Path, busy_port: int) -> Iterator[dict[str, Future[Ended]]]:
    """Start the service in each way, two at once."""
    (folder / "cache").write_text("a file")
    (folder / "empty").mkdir()
    models, cache = {"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository)}, {"MOBILE_SAM_CACHE_DIR": str(folder)}
    with ThreadPoolExecutor(2) as pool:

        def start(port: int | None = None, **environment: str) -> Future[Ended]:
            return pool.submit(serve_expecting_failure, port, **{**models, **environment})

        yield {
            "setting": start(MOBILE_SAM_API_KEYS="me:short"),
            "models": start(MOBILE_SAM_MODEL_REPOSITORY=str(folder / "empty")),
            "cache": start(MOBILE_SAM_CACHE_DIR=str(folder / "cache")),
            "port": start(busy_port, **cache),
        }


@pytest.mark.parametrize(
    ("case", "message"),
    [
        pytest.param("setting", "MOBILE_SAM_API_KEYS", id="invalid setting"),
        pytest.param("models", "`make weights` writes it", id="repository without models"),
        pytest.param("cache", "error: cannot write Triton's folder {folder}/cache/triton: Not a directory", id="cache"),
        pytest.param(
            "port",
            "error: port {port} of 127.0.0.1 is in use: stop the program there or choose another port",
            id="port in use",
        ),
    ],
)
def test_failed_start_ends_with_one_line(starts, folder, busy_port, case, message):
    ended = starts[case].result()
    assert ended.returncode == 1
    assert message.format(folder=folder, port=busy_port) in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert "Could not bind" not in ended.stdout
