"""Addresses on which the service and its Triton listen, and the lines of a start that name the
service's.
"""

import re

import psutil
import pytest
import requests

from harness import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_service_listens_on_its_port_and_triton_on_loopback_without_requests_of_others(server):
    family = [
        psutil.Process(server.process.pid),
        *psutil.Process(server.process.pid).children(recursive=True),
    ]
    listening = {
        (process.name() == "tritonserver", entry.laddr.ip, entry.laddr.port)
        for process in family
        for entry in process.net_connections()
        if entry.status == psutil.CONN_LISTEN
    }
    assert {(ip, port) for is_triton, ip, port in listening if not is_triton} == {
        ("127.0.0.1", server.port)
    }
    tritons = {(ip, port) for is_triton, ip, port in listening if is_triton}
    assert len(tritons) == 2  # inference and metrics
    assert {ip for ip, _ in tritons} == {"127.0.0.1"}

    triton = next(process for process in family if process.name() == "tritonserver")
    port = next(
        int(arg.split("=")[1]) for arg in triton.cmdline() if arg.startswith("--http-port=")
    )
    assert requests.get(f"http://127.0.0.1:{port}/v2/health/ready", timeout=60).status_code == 200
    for path in (
        "repository/index",
        "models/mobile_sam/infer",
        "models/mobile_sam_encoder/versions/1/infer",
    ):
        answer = requests.post(f"http://127.0.0.1:{port}/v2/{path}", "[" * 1_000_000, timeout=60)
        assert answer.status_code == 403
    assert triton.is_running()


def test_one_line_of_a_start_says_where_the_service_is(server):
    wait_until(lambda: "Ready" in server.log.read_text())
    lines = server.log.read_text().splitlines()
    # Services of other tests.
    first, *others = [line for line in lines if "uses the same folder" not in line]
    assert re.match(r"Triton \d+\.\d+\.\d+ is ready after ", first)
    assert requests.get(f"{server.url}/info", timeout=60).json()["triton"] == first.split()[1]
    assert "vulnerabilities" not in server.log.read_text()  # it listens on loopback only
    (ready,) = [line for line in others if line.startswith("Ready: ")]
    assert ready.startswith(
        f"Ready: page {server.url}/ui, API {server.url}/, weights builtin, encoder "
    )
    assert ready.endswith(" (Ctrl+C stops)")
