"""The service as a process of its own, started and stopped by a measurement."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 60


@dataclass(frozen=True)
class Service:
    """A running service."""

    process: psutil.Process
    url: str

    def resident_bytes(self) -> int:
        """Resident memory of all its processes, shared pages counted in each."""
        return sum(process.memory_info().rss for process in [self.process, *self.process.children(recursive=True)])


@contextmanager
def running(repository: Path) -> Iterator[Service]:
    """The service of this checkout on a free port with the models of `repository`, ready.

    Raises:
        RuntimeError: it does not become ready; the message holds the end of its log.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = ROOT / ".cache" / "benchmark-service.log"
    log.parent.mkdir(exist_ok=True)
    bentoml = str(Path(sys.executable).parent / "bentoml")
    with log.open("wb") as output:
        server = subprocess.Popen(
            [bentoml, "serve", "service.py:svc", "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "BENTOML_DO_NOT_TRACK": "True", "MOBILE_SAM_MODEL_REPOSITORY": str(repository)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        service = Service(psutil.Process(server.pid), f"http://127.0.0.1:{port}")
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _ready(service.url):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not become ready; the end of {log}:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield service
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def _ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=5).ok
    except requests.RequestException:
        return False
