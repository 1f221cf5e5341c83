"""Half-open connections without end, against a service that may have few file descriptors."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack, suppress

import psutil
import pytest
import requests

from tests.e2e.server import launch_server

pytestmark = pytest.mark.e2e

DESCRIPTORS = 256
HALF_OPEN, BETWEEN_PROBES = 2000, 25


def test_probes_are_answered_beside_more_half_open_connections_than_there_are_descriptors(repository, tmp_path):
    server = launch_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(repository), MOBILE_SAM_ENGINE="openvino")
    # Well before it has imported anything; the service raises the first of the two.
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS // 2, DESCRIPTORS))
    host, port = server.url.removeprefix("http://").split(":")
    with ExitStack() as open_connections:
        open_connections.callback(server.request_stop)
        server.wait_until_ready()
        for number in range(HALF_OPEN):
            connection = open_connections.enter_context(socket.create_connection((host, int(port)), timeout=10))
            with suppress(ConnectionError):  # it has been closed for a newer one
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\nX-Half: ")
            if number % BETWEEN_PROBES == 0:
                assert requests.get(f"{server.url}/readyz", timeout=10).status_code == 200
        workers = psutil.Process(server.process.pid).children(recursive=True)
        limits = {worker.rlimit(resource.RLIMIT_NOFILE) for worker in workers}
        assert limits == {(DESCRIPTORS, DESCRIPTORS)}
    log = server.log.read_text()
    assert f"this process may have {DESCRIPTORS} file descriptors" in log
    assert 1 <= log.count("too many connections") < HALF_OPEN // 20
    assert "Too many open files" not in log
