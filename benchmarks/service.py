"""The service and other servers as processes of a measurement."""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

from mobile_sam_onnx import Preparer

ROOT = Path(__file__).resolve().parent.parent
READY_TIMEOUT_S = 60
SERVER_PORTS = 10_000, 32_768
OFFICIAL, BUILTIN = "official", "builtin"
"""Weights of the measurements."""


@dataclass(frozen=True)
class Server:
    """Running server and its processes."""

    process: psutil.Process
    port: int

    @property
    def url(self) -> str:
        """Return the server's URL."""
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> list[psutil.Process]:
        """Return all processes."""
        return [self.process, *self.process.children(recursive=True)]

    def resident_bytes(self) -> int:
        """Return the resident memory of all processes, shared pages counted in each."""
        return sum(process.memory_info().rss for process in self.processes())

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes since they started."""
        times = [process.cpu_times() for process in self.processes()]
        return sum(time.user + time.system for time in times)


@dataclass(frozen=True)
class Service(Server):
    """Running service of this checkout."""

    metrics_url: str
    """URL of Triton's metrics."""

    def embeddings(self) -> dict[str, int]:
        """Return the number of embeddings by source since the start."""
        return embedding_counts(self.metrics_url)


def prepare(weights: str) -> Path:
    """Return a model repository with these weights, apart from the checkout's own; exported by the first run.

    Args:
        weights: `official`, `builtin`, `random`, or the path of a checkpoint.

    Raises:
        MobileSamOnnxError: the weights are unavailable or unsuitable.
    """
    repository = ROOT / ".cache" / f"benchmark-{Path(weights).name}" / "model_repository"
    shutil.copytree(
        ROOT / "model_repository",
        repository,
        ignore=shutil.ignore_patterns("*.onnx", "weights.json", "__pycache__"),
        dirs_exist_ok=True,
    )
    Preparer(repository, print).prepare(weights)
    return repository


@contextmanager
def running(
    repository: Path, *, engine: str = "auto", known_images: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[Service]:
    """Start the service of this checkout on a free port and wait until it is ready.

    Args:
        repository: the model repository, as returned by `prepare`.
        engine: as in `MOBILE_SAM_ENGINE`; services of different engines may run at once.
        known_images: keep the embeddings of the last run.
        settings: further environment variables.

    Raises:
        RuntimeError: the service does not become ready; the message holds the end of its log.
    """
    embeddings = ROOT / ".cache" / f"benchmark-embeddings-{engine}"
    if not known_images:
        shutil.rmtree(embeddings, ignore_errors=True)
    (metrics_port,) = free_ports(1)
    environment = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(repository),
        "MOBILE_SAM_ENGINE": engine,
        "MOBILE_SAM_EMBEDDING_CACHE_DIR": str(embeddings),
        "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
        **(settings or {}),
    }
    with serving(f"service-{engine}", ["bentoml", "serve", "service.py:svc"], environment) as server:
        yield Service(server.process, server.port, f"http://127.0.0.1:{metrics_port}/metrics")


@contextmanager
def serving(name: str, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Server]:
    """Start a server on a free port and wait until it is ready.

    Args:
        name: name of its log.
        command: command of this environment that takes `--host` and `--port`.
        environment: variables in addition to this process's.

    Raises:
        RuntimeError: the server does not become ready; the message holds the end of its log.
    """
    (port,) = free_ports(1)
    log = ROOT / ".cache" / f"benchmark-{name}.log"
    log.parent.mkdir(exist_ok=True)
    program = str(Path(sys.executable).parent / command[0])
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *command[1:], "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={**os.environ, "BENTOML_DO_NOT_TRACK": "True", **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        server = Server(psutil.Process(process.pid), port)
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _ready(server.url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not become ready; the end of {log}:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def embedding_counts(metrics_url: str) -> dict[str, int]:
    """Return the number of embeddings by source, from Triton's metrics: `found`, `shared`, `encoded`."""
    text = requests.get(metrics_url, timeout=60).text
    counted = re.findall(r'^mobile_sam_embeddings_total\{source="(\w+)"\} (\d+)', text, re.MULTILINE)
    return {"found": 0, "shared": 0, "encoded": 0} | {source: int(count) for source, count in counted}


def free_ports(count: int) -> list[int]:
    """Return unused ports below the range for outgoing connections, because a server may bind them much later."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = random.randrange(*SERVER_PORTS)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def _ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/readyz", timeout=5).ok
    except requests.RequestException:
        return False
