"""Private parts of BentoML and other packages."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bentoml._internal.utils import circus

from utils import bento

ROOT = Path(__file__).resolve().parents[3]
MANAGER = """
import shutil, sys
from pathlib import Path
from bentoml._internal.utils import circus
from bentoml.serving import create_watcher
from utils.bento import set_up_process_manager
folder, case = Path(sys.argv[1]), sys.argv[2]
failure = "model mul cannot be loaded" if case == "failed" else ""
set_up_process_manager(folder, lambda: failure, lambda url: None)
sleeper = create_watcher(name="sleeper", args=["-c", "import time; time.sleep(600)"], use_sockets=False)
arbiter = circus.create_standalone_arbiter([sleeper], sockets=[])
assert not sleeper.stop_children  # a signal to the watchdog must not reach Triton
if case != "busy":
    arbiter.exit_stack.callback(shutil.rmtree, folder / "removed")

def ready(_):
    if case == "busy":
        arbiter._exclusive_running_command = "manage_watchers"
        arbiter.loop.call_later(1, setattr, arbiter, "_exclusive_running_command", None)
    arbiter.loop.call_later(0.2, print, "ready", flush=True)

arbiter.start(cb=ready)
"""


@pytest.mark.parametrize(
    ("case", "status"),
    [
        pytest.param("busy", 0, id="while a worker starts"),
        pytest.param("folder removed", 0, id="after the temporary folder was removed"),
        pytest.param("failed", 1, id="after Triton could not start"),
    ],
)
def test_a_signal_stops_the_process_manager(tmp_path, case, status):
    with subprocess.Popen(
        [sys.executable, "-c", MANAGER, tmp_path, case],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stdout is not None
        assert "ready\n" in iter(process.stdout.readline, "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == status


@pytest.fixture
def manager(monkeypatch, tmp_path):
    """Return a function that makes a process manager, which starts nothing, for a listener."""
    monkeypatch.setattr(circus.Arbiter, "start", lambda _: None)
    monkeypatch.setattr(circus, "Arbiter", circus.Arbiter)

    def make(host: str, arguments: tuple[str, ...] = (), warning: str = "") -> Any:
        bento.set_up_process_manager(tmp_path, str, lambda _: None, warning)
        made = circus.Arbiter.__new__(circus.Arbiter)
        made.sockets = {"_bento_api_server": SimpleNamespace(host=host, port=3000)}
        made.watchers = [SimpleNamespace(args=arguments)]
        return made

    return make


@pytest.mark.parametrize(
    ("host", "arguments", "url"),
    [
        pytest.param("127.0.0.1", (), "http://127.0.0.1:3000", id="IPv4"),
        pytest.param("::1", (), "http://[::1]:3000", id="IPv6"),
        pytest.param("0.0.0.0", (), "http://localhost:3000", id="all addresses"),
        pytest.param("192.0.2.1", ("--ssl-certfile", "crt"), "https://192.0.2.1:3000", id="TLS"),
    ],
)
def test_process_manager_knows_the_url_of_the_service(manager, host, arguments, url):
    assert manager(host, arguments).url() == url


@pytest.mark.parametrize(
    ("host", "warning", "lines"),
    [
        pytest.param("127.0.0.1", "{address} is open", [], id="this machine"),
        pytest.param("::1", "{address} is open", [], id="this machine, IPv6"),
        pytest.param("0.0.0.0", "{address} is open", ["0.0.0.0:3000 is open"], id="all addresses"),
        pytest.param("0.0.0.0", "", [], id="with keys"),
    ],
)
def test_start_on_a_public_address_logs_one_warning(manager, caplog, host, warning, lines):
    manager(host, warning=warning).start()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", x) for x in lines
    ]


def test_installed_packages_have_all_private_parts():
    bento.check_hooks()


@pytest.mark.parametrize(
    ("target", "names", "message"),
    [
        pytest.param("uvicorn:Server", "run moved", "uvicorn has no moved", id="attribute"),
        pytest.param("uvicorn:Moved", "", "uvicorn has no Moved", id="class"),
        pytest.param("uvicorn.moved:Server", "", "uvicorn.moved has no Server", id="module"),
    ],
)
def test_a_moved_private_part_stops_the_service_with_one_line(monkeypatch, target, names, message):
    monkeypatch.setattr(bento, "HOOKS", {target: names})
    with pytest.raises(SystemExit, match=f"^error: unsupported version of uvicorn: {message}$"):
        bento.check_hooks()


def test_foreign_address_is_a_one_line_error():
    with pytest.raises(SystemExit, match=r"^error: cannot listen on 192\.0\.2\.1:3000: [^\n]+$"):
        bento.check_address("192.0.2.1", 3000)


def test_own_client_of_triton_waits_for_slow_weights(monkeypatch):
    monkeypatch.setattr(bento, "triton_address", lambda _: "127.0.0.1:1")
    handle = SimpleNamespace(_http_client_cache=None)

    async def connected() -> Any:
        bento.connect(SimpleNamespace(name="triton", _runner_handle=handle))
        client: Any = handle._http_client_cache
        await client.close()
        return client._stub.timeout.total

    assert asyncio.run(connected()) is None
