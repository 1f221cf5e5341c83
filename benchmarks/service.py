"""The service as a process of its own, started and stopped by a measurement."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
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
    metrics_url: str
    """Triton's metrics."""

    def resident_bytes(self) -> int:
        """Resident memory of all its processes, shared pages counted in each."""
        return sum(process.memory_info().rss for process in [self.process, *self.process.children(recursive=True)])

    def embeddings(self) -> dict[str, int]:
        """How many embeddings came from where since the start."""
        return embedding_counts(self.metrics_url)


@contextmanager
def running(repository: Path, *, known_images: bool = False) -> Iterator[Service]:
    """The service of this checkout on a free port with the models of `repository`, ready.

    Args:
        repository: the model repository.
        known_images: begin with the embeddings that the last one left, instead of with none.

    Raises:
        RuntimeError: it does not become ready; the message holds the end of its log.
    """
    port, metrics_port = free_ports(2)
    log = ROOT / ".cache" / "benchmark-service.log"
    log.parent.mkdir(exist_ok=True)
    embeddings = ROOT / ".cache" / "benchmark-embeddings"
    if not known_images:
        shutil.rmtree(embeddings, ignore_errors=True)
    bentoml = str(Path(sys.executable).parent / "bentoml")
    with log.open("wb") as output:
        server = subprocess.Popen(
            [bentoml, "serve", "service.py:svc", "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={
                **os.environ,
                "BENTOML_DO_NOT_TRACK": "True",
                "MOBILE_SAM_MODEL_REPOSITORY": str(repository),
                "MOBILE_SAM_EMBEDDING_CACHE_DIR": str(embeddings),
                "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url, metrics_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{metrics_port}/metrics"
        service = Service(psutil.Process(server.pid), url, metrics_url)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _ready(service.url):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not become ready; the end of {log}:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield service
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def embedding_counts(metrics_url: str) -> dict[str, int]:
    """How many embeddings came from where, by Triton's metrics: `found`, `shared`, `encoded`."""
    text = requests.get(metrics_url, timeout=5).text
    counted = re.findall(r'^mobile_sam_embeddings_total\{source="(\w+)"\} (\d+)', text, re.MULTILINE)
    return {"found": 0, "shared": 0, "encoded": 0} | {source: int(count) for source, count in counted}


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=5).ok
    except requests.RequestException:
        return False
