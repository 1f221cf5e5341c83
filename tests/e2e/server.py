"""Starting and stopping the service for end-to-end tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT = 60


@dataclass
class Server:
    """A running service."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def post(self, **fields) -> requests.Response:
        return requests.post(f"{self.url}/mobile_sam", json=fields, timeout=60)

    def stop(self) -> int:
        """SIGTERM, and wait for the end; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(log: Path, target: str = "service.py:svc", **environment: str) -> Server:
    """Serve `target` on a free port of this machine and wait until it is ready."""
    port = free_port()
    bentoml = str(Path(sys.executable).parent / "bentoml")
    own = {name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_TRITON_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [bentoml, "serve", target, "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={**own, "BENTOML_DO_NOT_TRACK": "True", **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process, f"http://127.0.0.1:{port}", log)
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(f"{server.url}/readyz", timeout=5).ok:
                return server
        except requests.RequestException:
            pass
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    pytest.fail(f"the service did not become ready; its log:\n{log.read_text()[-5000:]}")
