"""Start and stop: nothing is left behind, even after a failed start. `test_faults.py` stops a service under load."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import requests

from benchmarks.service import free_ports
from tests.e2e.server import ROOT, base_environment, serve_expecting_failure

pytestmark = pytest.mark.e2e


def test_stop_while_triton_loads_leaves_nothing_behind(repository, tmp_path):
    bentoml = Path(sys.executable).parent / "bentoml"
    settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(repository), "BENTOML_DO_NOT_TRACK": "True"}
    with (tmp_path / "log").open("wb") as log:
        command = [str(bentoml), "serve", "service.py:svc", "--host", "127.0.0.1", "--port", str(free_ports(1)[0])]
        process = subprocess.Popen(command, cwd=ROOT, env={**base_environment(), **settings}, stdout=log, stderr=log)

    def family() -> list[psutil.Process]:
        return psutil.Process(process.pid).children(recursive=True)

    def is_stub(child: psutil.Process) -> bool:
        try:
            return child.name().startswith("triton_python")
        except psutil.NoSuchProcess:  # a helper of the start, already gone
            return False

    deadline = time.monotonic() + 60
    while not any(map(is_stub, family())):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    children = family()
    process.terminate()
    assert process.wait(60) == 0
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert not [entry for entry in Path("/dev/shm").iterdir() if f"_{process.pid}_" in entry.name]


def test_repository_without_models_ends_the_start_with_one_line(tmp_path):
    result = serve_expecting_failure(MOBILE_SAM_MODEL_REPOSITORY=str(tmp_path))
    assert result.returncode == 1
    assert "`make weights` writes it" in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_unwritable_cache_folder_ends_the_start_and_is_named(repository, tmp_path):
    (tmp_path / "cache").write_text("a file")
    result = serve_expecting_failure(
        MOBILE_SAM_MODEL_REPOSITORY=str(repository), MOBILE_SAM_CACHE_DIR=str(tmp_path / "cache")
    )
    assert result.returncode == 1
    assert result.stderr == f"error: cannot write Triton's folder {tmp_path}/cache/triton: Not a directory\n"
    assert f"Triton cannot run here: cannot write Triton's folder {tmp_path}/cache/triton" in result.stdout


def test_port_in_use_ends_the_start_with_one_line(repository, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = serve_expecting_failure(
            port, MOBILE_SAM_MODEL_REPOSITORY=str(repository), MOBILE_SAM_CACHE_DIR=str(tmp_path)
        )
    assert result.returncode == 1
    reason = "is in use: stop the program there or choose another port"
    assert result.stderr == f"error: port {port} of 127.0.0.1 {reason}\n"
    assert "Could not bind" not in result.stdout


def test_only_the_service_and_triton_listen_on_ports(server):
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    listening = {
        (process.name() == "tritonserver", entry.laddr.ip, entry.laddr.port)
        for process in family
        for entry in process.net_connections()
        if entry.status == psutil.CONN_LISTEN
    }
    own_port = int(server.url.rpartition(":")[2])
    assert {(ip, port) for is_triton, ip, port in listening if not is_triton} == {("127.0.0.1", own_port)}
    assert len({port for is_triton, _, port in listening if is_triton}) == 2  # inference and metrics


def test_triton_listens_on_loopback_only_and_rejects_control_requests(server):
    family = psutil.Process(server.process.pid).children(recursive=True)
    triton = next(process for process in family if process.name() == "tritonserver")
    listening = [entry.laddr for entry in triton.net_connections() if entry.status == psutil.CONN_LISTEN]
    assert listening
    assert {address.ip for address in listening} == {"127.0.0.1"}
    port = next(int(arg.split("=")[1]) for arg in triton.cmdline() if arg.startswith("--http-port="))
    assert requests.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).status_code == 200
    answer = requests.post(f"http://127.0.0.1:{port}/v2/repository/index", timeout=5)
    assert answer.status_code == 403
