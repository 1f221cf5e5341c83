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
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from benchmarks.service import embedding_counts, free_ports
from mobile_sam_onnx import Preparer

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT = 60


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

    def stop(self) -> int:
        """SIGTERM, and wait for the end; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)


def inherited() -> dict[str, str]:
    """This process's variables without those that the processes of one service share."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_TRITON_")}


def serve_in_vain(**environment: str) -> subprocess.CompletedProcess[str]:
    """Start the service where it cannot run, and wait until it has ended by itself."""
    return subprocess.run(
        [Path(sys.executable).parent / "bentoml", "serve", "service.py:svc", "--port", str(free_ports(1)[0])],
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


def start_server(log: Path, target: str = "service.py:svc", port: int | None = None, **environment: str) -> Server:
    """Serve `target` on a port of this machine, a free one unless told, and wait until it is ready.

    Embeddings are kept beside the log unless `environment` says otherwise.
    """
    free_port, metrics_port = free_ports(2)
    port = port or free_port
    bentoml = str(Path(sys.executable).parent / "bentoml")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [bentoml, "serve", target, "--host", "127.0.0.1", "--port", str(port)],
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
    server = Server(process, f"http://127.0.0.1:{port}", log, f"http://127.0.0.1:{metrics_port}/metrics")
    deadline = time.monotonic() + READY_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(f"{server.url}/readyz", timeout=5).ok:
                return server
        except requests.RequestException:
            pass
        time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    pytest.fail(f"the service did not become ready; its log:\n{log.read_text()[-5000:]}")
