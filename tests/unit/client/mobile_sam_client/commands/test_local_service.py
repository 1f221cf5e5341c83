"""Temporary local service: start, stop, failures."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest

from harness import wait_until
from mobile_sam_client._commands import local_service as module
from mobile_sam_client._commands.local_service import ServiceStartError, local_service
from mobile_sam_client._commands.output import CommandError

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[2])}
SERVICE = """
import http.server, os, pathlib, subprocess, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ready")

    def log_message(self, *_):
        pass

child = subprocess.Popen(["sleep", "1000"])
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
print("serving", flush=True)
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch) -> Path:
    """Folder that looks like a checkout, with a small service that has a child process."""
    folder = tmp_path / "checkout"
    (folder / "model_repository").mkdir(parents=True)
    (folder / "service.py").write_text(SERVICE)
    (folder / "Makefile").write_text(f"serve:\n\t@{sys.executable} service.py $(HOST) $(PORT)\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return folder


def running(checkout: Path) -> list[int]:
    """Return the ids of the service's live processes."""
    return [pid for pid in map(int, (checkout / "pids").read_text().split()) if _alive(pid)]


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def logs(checkout: Path) -> list[str]:
    return [log.read_text() for log in checkout.parent.glob("mobile-sam-*.log")]


def test_service_runs_only_within_the_block(checkout):
    with pytest.raises(CommandError), local_service() as url:  # noqa: PT012 (also an error ends it)
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        assert httpx.get(f"{url}/readyz").text == "ready"
        assert len(running(checkout)) == 2
        raise CommandError
    assert running(checkout) == []
    assert logs(checkout) == []


def test_service_stops_when_the_command_is_killed(checkout):
    code = f"from {module.__name__} import *\nwith local_service(): print(1, flush=True); input()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT, **pipes) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"1\n"
        assert len(running(checkout)) == 2
        owner.kill()
    wait_until(lambda: not running(checkout))


def test_failed_start_names_the_log(checkout):
    (checkout / "Makefile").write_text("serve:\n\t@echo 'error: the disk is too full' && echo more && exit 3\n")
    message = r"did not start: the disk is too full; its log is .*mobile-sam-.*\.log$"
    with pytest.raises(ServiceStartError, match=message), local_service():
        pytest.fail("it started")
    (log,) = logs(checkout)
    assert "the disk is too full" in log


def test_second_ctrl_c_kills_the_service(checkout, monkeypatch):
    (checkout / "service.py").write_text("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SERVICE)

    def interrupt(_: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    # Not `time.sleep` itself: other threads of this process sleep too.
    used = SimpleNamespace(sleep=interrupt, monotonic=time.monotonic)
    with pytest.raises(KeyboardInterrupt), local_service():
        monkeypatch.setattr(module, "time", used)
    assert running(checkout) == []
    assert logs(checkout) == []


def test_serve_becomes_the_service(checkout):
    recipe = "exec sh -c 'echo $$$$ $(HOST) $(PORT) $(MAKELEVEL); exec sleep 1000'"
    (checkout / "Makefile").write_text(f"serve:\n\t@{recipe}\n")
    program = [sys.executable, "-m", "mobile_sam_client", "serve", "--port", "3170"]
    with subprocess.Popen(program, env={**ENVIRONMENT, "MAKELEVEL": "1"}, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        pid, *rest = service.stdout.readline().split()
        assert rest == ["127.0.0.1", "3170", "0"]
        service.terminate()
        assert service.wait(60) != 0
    wait_until(lambda: not _alive(int(pid)))


@pytest.mark.parametrize("arguments", ["embed photo.png --local", "serve"], ids=["local", "serve"])
def test_missing_checkout_is_reported(run, monkeypatch, tmp_path, arguments):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "a" / "b" / "c" / "d" / "module.py"))
    (tmp_path / "photo.png").write_bytes(b"bytes")
    done = run(arguments)
    expected = f"error: {tmp_path} is not the project's checkout (service.py, Makefile, model_repository); clone the "
    assert (done.exit_code, done.stderr) == (1, f"{expected}project, and run `make serve` in it\n")
