"""More half-open connections than the service has file descriptors."""

import resource
import socket
from contextlib import ExitStack, suppress

import psutil
import pytest
import requests

from harness import launch_server

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MAX_DESCRIPTORS = 256
HALF_OPEN_CONNECTIONS, CONNECTIONS_PER_PROBE = 2000, 25


def test_probes_are_answered_despite_exhausted_file_descriptors(builtin_repository, tmp_path):
    # The service raises the soft limit itself.
    limit = f'ulimit -Sn {MAX_DESCRIPTORS // 2} && ulimit -Hn {MAX_DESCRIPTORS} && exec "$0" "$@"'
    server = launch_server(
        tmp_path / "log",
        wrapper=["sh", "-c", limit],
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
    )
    host, port = server.url.removeprefix("http://").split(":")
    with ExitStack() as open_connections:
        open_connections.callback(server.request_stop)
        server.wait_until_ready()
        for number in range(HALF_OPEN_CONNECTIONS):
            connection = open_connections.enter_context(
                socket.create_connection((host, int(port)), timeout=60)
            )
            with suppress(ConnectionError):  # closed in favour of a newer one
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\nX-Half: ")
            if number % CONNECTIONS_PER_PROBE == 0:
                assert requests.get(f"{server.url}/readyz", timeout=60).status_code == 200
        workers = psutil.Process(server.process.pid).children(recursive=True)
        limits = {worker.rlimit(resource.RLIMIT_NOFILE) for worker in workers}
        assert limits == {(MAX_DESCRIPTORS, MAX_DESCRIPTORS)}
    log = server.log.read_text()
    assert f"this process is limited to {MAX_DESCRIPTORS} file descriptors" in log
    assert 1 <= log.count("too many connections") < HALF_OPEN_CONNECTIONS // 20
    assert "Too many open files" not in log
