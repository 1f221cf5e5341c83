"""Starting and stopping the service for end-to-end tests."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests

from benchmarks.service import embedding_counts, free_ports
from mobile_sam_onnx import Preparer
from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.sources import BUILTIN

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT, STOP_TIMEOUT = 60, 40
_left: list[Server] = []


@dataclass
class Server:
    """A running service."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    metrics_url: str

    def post(self, path: str = "/mobile_sam", **fields) -> requests.Response:
        return requests.post(f"{self.url}{path}", json=fields, timeout=60)

    def embeddings(self) -> dict[str, int]:
        """How many embeddings came from where since the start: `found`, `shared`, `encoded`."""
        return embedding_counts(self.metrics_url)

    def metric(self, name: str, model: str) -> int:
        """One of Triton's counters."""
        text = requests.get(self.metrics_url, timeout=5).text
        (count,) = re.findall(rf'^{name}\{{model="{model}",version="1"\}} (\d+)', text, re.MULTILINE)
        return int(count)

    def metrics_with(self, series: str) -> str:
        """What `/metrics` shows, once this is among it: how long stages took is told a second late."""
        deadline = time.monotonic() + READY_TIMEOUT
        while series not in (text := requests.get(f"{self.url}/metrics", timeout=10).text):
            assert time.monotonic() < deadline, f"no {series} in {text}"
            time.sleep(0.1)
        return text

    def wait_until_ready(self) -> Server:
        """Itself, once it is ready; where that does not come, the test fails and shows the log."""
        deadline = time.monotonic() + READY_TIMEOUT
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if requests.get(f"{self.url}/readyz", timeout=5).ok:
                    return self
            except requests.RequestException:
                pass
            time.sleep(0.1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        pytest.fail(f"the service did not become ready; its log:\n{self.log.read_text()[-5000:]}")

    def stop(self) -> int:
        """SIGTERM, and wait for the end; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT)

    def leave(self) -> None:
        """SIGTERM, and go on: `ends_of_those_left` waits for the end. A stop is mostly waiting, and takes seconds."""
        self.process.send_signal(signal.SIGTERM)
        _left.append(self)


def ends_of_those_left() -> dict[Path, int]:
    """Wait for the ends of all services that were left; the exit status of each by its log."""
    found = {server.log: server.process.wait(STOP_TIMEOUT) for server in _left}
    _left.clear()
    return found


@contextlib.contextmanager
def serving(log: Path, target: str = "service.py:svc", **environment: str) -> Iterator[Server]:
    """A service that is left in the end, as `start_server` starts it."""
    server = start_server(log, target, None, **environment)
    try:
        yield server
    finally:
        server.leave()


def inherited() -> dict[str, str]:
    """This process's variables without those that the processes of one service share."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_TRITON_")}


def serve_in_vain(port: int | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Start the service where it cannot run, on a free port unless told, and wait until it has ended by itself."""
    address = ["--host", "127.0.0.1", "--port", str(port or free_ports(1)[0])]
    return subprocess.run(
        [Path(sys.executable).parent / "bentoml", "serve", "service.py:svc", *address],
        cwd=ROOT,
        env={**inherited(), "BENTOML_DO_NOT_TRACK": "True", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def make_repository(folder: Path, weights: str) -> Path:
    """A copy of the model repository in a new `folder`, with model files of these weights."""
    generated = shutil.ignore_patterns("*.onnx", "weights.json", "__pycache__")
    shutil.copytree(ROOT / "model_repository", folder, symlinks=True, ignore=generated)
    Preparer(folder, print).prepare(weights)
    return folder


def write_other_weights(path: Path) -> Path:
    """Write a small weights file, `.npz`, that answers differently from the built-in weights; return its path."""
    np.savez(path, **{name: np.asarray(value, np.float32) * 1.01 for name, value in load_checkpoint(BUILTIN).items()})
    return path


def start_server(
    log: Path, target: str = "service.py:svc", port: int | None = None, through: Sequence[str] = (), **environment: str
) -> Server:
    """Serve `target` on a port of this machine, a free one unless told, and wait until it is ready."""
    return begin_server(log, target, port, through, **environment).wait_until_ready()


def begin_server(
    log: Path, target: str = "service.py:svc", port: int | None = None, through: Sequence[str] = (), **environment: str
) -> Server:
    """The same without the wait, for several that start at once.

    Args:
        log: file for its output; embeddings are kept beside it unless `environment` says otherwise.
        target: as `bentoml serve` takes it.
        port: a free one unless given.
        through: a command that executes the command appended to it, such as `prlimit --nofile=256 --`.
        environment: variables added to this process's.
    """
    free_port, metrics_port = free_ports(2)
    port = port or free_port
    bentoml = str(Path(sys.executable).parent / "bentoml")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*through, bentoml, "serve", target, "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={
                **inherited(),
                "BENTOML_DO_NOT_TRACK": "True",
                "MOBILE_SAM_EMBEDDING_CACHE_DIR": str(log.parent / "embeddings"),
                "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
                **environment,
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(process, f"http://127.0.0.1:{port}", log, f"http://127.0.0.1:{metrics_port}/metrics")
