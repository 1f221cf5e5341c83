"""SIGTERM and the death of the parent: nothing hangs, nothing is left behind."""

import socket
from collections.abc import Iterator

import psutil
import pytest

from harness import Server, launch_server, wait_until
from tests.chaos.processes import left_over

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def check_stop(server: Server, processes: list[psutil.Process]) -> None:
    """Stop a service that has these processes, and check that nothing is left."""
    assert server.stop() == 0, server.log.read_text()[-3000:]
    assert left_over(processes, 60) == []
    assert server.regions() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert "a step of the shutdown failed" not in server.log.read_text()


@pytest.fixture
def server(builtin_repository, tmp_path) -> Iterator[Server]:
    """Launch a service, and kill what is left of it at the end."""
    launched = launch_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository))
    yield launched
    launched.kill()


def processes_of(server: Server) -> list[psutil.Process]:
    """Wait until the service loads its models, and return its processes."""
    wait_until(lambda: bool(server.stubs()), every=0.1)
    return server.family()


def test_service_told_to_stop_while_it_starts_exits_with_0_and_leaves_nothing(server):
    check_stop(server, processes_of(server))


def test_service_whose_first_process_is_killed_while_it_starts_ends(server):
    processes = processes_of(server)
    server.process.kill()
    server.process.wait()
    assert left_over(processes, 60) == []
