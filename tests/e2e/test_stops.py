"""SIGTERM and the death of the parent, without the rights of root: nothing hangs, nothing is left behind."""

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from tests.chaos import victims
from tests.chaos.callers import click, crowd, photo
from tests.e2e.server import Server, launch_server
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv (util-linux)"),
]

OTHER_USER = 65534
# The other user may read every file, as the checkout and the environment may lie in a private folder.
READS_ALL = "-all,+dac_read_search"
USERS = {
    "root-of-a-container": ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"],
    "another-user": [
        *("setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"),
        *(f"--inh-caps={READS_ALL}", f"--ambient-caps={READS_ALL}", f"--bounding-set={READS_ALL}"),
    ],
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Folder that the other user may write to."""
    with tempfile.TemporaryDirectory(prefix="stops-") as path:
        os.chown(path, OTHER_USER, OTHER_USER)
        yield Path(path)


@pytest.fixture
def launch(folder, builtin_repository) -> Iterator[Callable[[str], Server]]:
    """Launch services of a user, with all their files in the folder; kill what is left of them at the end."""
    servers = []

    def launch(user: str) -> Server:
        settings = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "BENTOML_HOME"), str(folder))
        settings["MOBILE_SAM_MODEL_REPOSITORY"] = str(builtin_repository)
        servers.append(launch_server(folder / "log", "service.py:svc", None, USERS[user], **settings))
        return servers[-1]

    yield launch
    for server in servers:
        server.kill()


def wait_for(state: str, server: Server) -> list[psutil.Process]:
    """Wait until the service loads its models (`starting`) or is ready, and return its processes."""
    if state == "starting":
        wait_until(lambda: bool(victims.stubs(server)))
    else:
        server.wait_until_ready()
    return victims.family(server)


@pytest.mark.parametrize("state", ["starting", "idle", "busy"])
@pytest.mark.parametrize("user", USERS)
def test_service_told_to_stop_exits_with_0_and_leaves_nothing(user, state, folder, launch):
    server = launch(user)
    processes = wait_for(state, server)
    with crowd(server.port, lambda: click(photo(1)), 8) if state == "busy" else nullcontext() as callers:
        if callers:
            wait_until(lambda: len(callers.answered()) > 20)
        assert server.stop() == 0, server.log.read_text()[-3000:]
    assert victims.left_over(processes, 60) == []
    assert victims.regions(server) == []
    assert not list(folder.glob("mobile-sam-triton-*-*"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert "a step of the shutdown failed" not in server.log.read_text()
    if callers:
        assert callers.reasons().keys() <= {"ok", "stopping", "closed", "refused"}


@pytest.mark.parametrize("state", ["starting", "idle"])
def test_service_whose_first_process_is_killed_ends(state, launch):
    server = launch("root-of-a-container")
    processes = wait_for(state, server)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert victims.left_over(processes, 60) == []
