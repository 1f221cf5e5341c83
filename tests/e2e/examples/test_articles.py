"""docs/articles.md: `tritonserver` on PATH, and a service with BentoML's own Triton runner."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tritonclient.http

from harness import ROOT, free_ports, serving, wait_until
from harness.server import READY_TIMEOUT_S, STOP_TIMEOUT_S
from tests.e2e.pages import Reader, blocks, matches

pytestmark = pytest.mark.e2e
PAGE = "docs/articles.md"
START, SERVICE, SERVE, CLIENT, SHOWN = blocks(PAGE, (ROOT / PAGE).read_text())
NAMES = ("INPUT0", "INPUT1")


@pytest.fixture(scope="module")
def shell():
    """Environment variables after the page's `eval`."""
    command = next(line for line in START.code.splitlines() if line.startswith("eval"))
    command = command.replace(".venv/bin/python", sys.executable)
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-ec", f"{command}; env -0"], cwd=ROOT, env=environment, capture_output=True, check=True, text=True
    )
    return dict(line.split("=", 1) for line in done.stdout.rstrip("\0").split("\0"))


def test_tritonserver_serves_models_copied_from_an_example(shell, tmp_path):
    """The log's first line is not about the missing GPU of a machine without one."""
    for part in ("config.pbtxt", "1/model.py"):
        copy = tmp_path / "models" / "add_sub" / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "examples/ensemble/model_repository/add_sub" / part, copy)
    http, grpc, metrics = free_ports(3)
    ports = [f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}"]
    addresses = [f"--{name}-address=127.0.0.1" for name in ("http", "grpc", "metrics")]
    log = tmp_path / "log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", "-c", 'exec tritonserver --model-repository `pwd`/models "$@"', "bash", *ports, *addresses],
            cwd=tmp_path,
            env=shell,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{http}") as triton:
            wait_until(lambda: server.poll() is not None or is_ready(triton), READY_TIMEOUT_S, log.read_text())
            assert server.poll() is None, log.read_text()
            values = np.random.default_rng(0).random((2, 4), np.float32)
            inputs = [tritonclient.http.InferInput(name, (4,), "FP32") for name in NAMES]
            for tensor, numbers in zip(inputs, values, strict=True):
                tensor.set_data_from_numpy(numbers)
            result = triton.infer("add_sub", inputs)
    finally:
        server.terminate()
        assert server.wait(STOP_TIMEOUT_S) == 0
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values[0] + values[1])
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), values[0] - values[1])
    assert "CUDA" not in log.read_text().splitlines()[0]


def test_service_of_the_page_answers_its_client(shell, official_repository, tmp_path):
    (tmp_path / "article.py").write_text(SERVICE.code)
    (tmp_path / "model_repository").symlink_to(official_repository)
    _, _, target, *_ = SERVE.code.split()
    with serving(tmp_path / "log", target, ["env", f"--chdir={tmp_path}"], PATH=shell["PATH"]) as service:
        folder = tmp_path / "client"
        folder.mkdir()
        assert matches(SHOWN, Reader(folder, service.url).run(CLIENT))


def is_ready(triton: tritonclient.http.InferenceServerClient) -> bool:
    try:
        return bool(triton.is_server_ready())
    except OSError:  # it does not listen yet
        return False
