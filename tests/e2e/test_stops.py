"""SIGTERM and the death of the parent: nothing hangs, nothing is left behind."""

import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext

import psutil
import pytest

from harness import Server, launch_server, wait_until
from harness.load import crowd
from tests.chaos.callers import click, photo
from tests.chaos.processes import left_over

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture
def server(builtin_repository, tmp_path) -> Iterator[Server]:
    """Launch a service, and kill what is left of it at the end."""
    launched = launch_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository))
    yield launched
    launched.kill()


def wait_for(state: str, server: Server) -> list[psutil.Process]:
    """Wait until the service loads its models (`starting`) or is ready, and return its processes."""
    if state == "starting":
        wait_until(lambda: bool(server.stubs()), every=0.1)
    else:
        server.wait_until_ready()
    return server.family()


@pytest.mark.parametrize("state", ["starting", "busy"])
def test_service_told_to_stop_exits_with_0_and_leaves_nothing(state, server):
    processes = wait_for(state, server)
    with crowd(server.port, lambda: click(photo(1)), 8) if state == "busy" else nullcontext() as callers:
        if callers:
            wait_until(lambda: len(callers.answered()) > 20)
        began = time.monotonic()
        assert server.stop() == 0, server.log.read_text()[-3000:]
    assert left_over(processes, 60) == []
    assert server.regions() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert "a step of the shutdown failed" not in server.log.read_text()
    if callers:
        assert callers.before(began).reasons().keys() <= {"ok", "stopping", "closed"}
        # The port closes while callers connect.
        assert callers.reasons().keys() <= {"ok", "stopping", "closed", "refused", "lost"}


def test_service_whose_first_process_is_killed_while_it_starts_ends(server):
    processes = wait_for("starting", server)
    server.process.kill()
    server.process.wait()
    assert left_over(processes, 60) == []
