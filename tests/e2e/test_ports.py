"""Addresses on which the service and its Triton listen."""

from __future__ import annotations

import psutil
import pytest
import requests

pytestmark = pytest.mark.e2e


def test_service_listens_on_its_port_and_triton_on_loopback_without_control_requests(server):
    family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
    listening = {
        (process.name() == "tritonserver", entry.laddr.ip, entry.laddr.port)
        for process in family
        for entry in process.net_connections()
        if entry.status == psutil.CONN_LISTEN
    }
    own_port = int(server.url.rpartition(":")[2])
    assert {(ip, port) for is_triton, ip, port in listening if not is_triton} == {("127.0.0.1", own_port)}
    tritons = {(ip, port) for is_triton, ip, port in listening if is_triton}
    assert len(tritons) == 2  # inference and metrics
    assert {ip for ip, _ in tritons} == {"127.0.0.1"}

    triton = next(process for process in family if process.name() == "tritonserver")
    port = next(int(arg.split("=")[1]) for arg in triton.cmdline() if arg.startswith("--http-port="))
    assert requests.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).status_code == 200
    answer = requests.post(f"http://127.0.0.1:{port}/v2/repository/index", timeout=5)
    assert answer.status_code == 403
