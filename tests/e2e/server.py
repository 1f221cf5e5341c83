"""Start and stop the service for end-to-end tests."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
import requests
from onnx import TensorProto, helper, numpy_helper

from benchmarks.service import embedding_counts, free_ports
from mobile_sam_onnx import Preparer, model
from mobile_sam_onnx.identity import Identity, VersionFolders

ROOT = Path(__file__).resolve().parents[2]
READY_TIMEOUT_S, STOP_TIMEOUT_S = 120, 60
KEYS = {
    "alice": "alice-key-of-24-letters",
    "bob": "bobs-key-of-24-letters..",
    "eve": "eves-key-of-24-letters..",
    "tools": "tools-key-of-24-letters.",
}
"""API keys of the service with keys, by caller."""
MAX_BODY_BYTES = 1_000_000
"""Limit of bodies of the service with keys."""
ORIGIN = "https://annotate.example"
"""Origin of pages that may call the service with keys."""
_stopping: list[Server] = []


@dataclass
class Server:
    """A running service process."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    metrics_url: str

    @property
    def port(self) -> int:
        """Return the port of the URL."""
        return int(self.url.rpartition(":")[2])

    def post(self, path: str = "/mobile_sam", **fields) -> requests.Response:
        return requests.post(f"{self.url}{path}", json=fields, timeout=60)

    def embeddings(self) -> dict[str, int]:
        """Return the number of embeddings since start-up by source: `found`, `shared`, `encoded`."""
        return embedding_counts(self.metrics_url)

    def metric(self, name: str, model: str) -> int:
        """Return the value of one of Triton's counters."""
        text = requests.get(self.metrics_url, timeout=60).text
        (count,) = re.findall(rf'^{name}\{{model="{model}",version="1"\}} (\d+)', text, re.MULTILINE)
        return int(count)

    def count(self, series: str) -> int:
        """Return the value of a series of Triton's metrics, with its labels; 0 without it."""
        text = requests.get(self.metrics_url, timeout=60).text
        found = re.search(rf"^{re.escape(series)} (\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0

    @contextlib.contextmanager
    def sending(self, path: str = "/mobile_sam", **fields) -> Iterator[socket.socket]:
        """Send a request without waiting for the answer; yield its connection, which is closed at the end."""
        body = json.dumps(fields).encode()
        headers = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        with socket.create_connection(("127.0.0.1", self.port), READY_TIMEOUT_S) as connection:
            connection.sendall(f"POST {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body)
            yield connection

    def wait_for_metric(self, series: str) -> str:
        """Wait for a series in `/metrics` and return the whole text; stage times appear up to a second late."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while series not in (text := requests.get(f"{self.url}/metrics", timeout=60).text):
            assert time.monotonic() < deadline, f"no {series} in {text}"
            time.sleep(0.1)
        return text

    def wait_until_ready(self) -> Server:
        """Return the server itself once it is ready; otherwise fail the test and show the log."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if requests.get(f"{self.url}/readyz", timeout=60).ok:
                    return self
            except requests.RequestException:
                pass
            time.sleep(0.1)
        self.kill()
        pytest.fail(f"the service did not become ready; its log:\n{self.log.read_text()[-5000:]}")

    def kill(self) -> None:
        """Kill all processes of the service, the main process first."""
        if self.process.poll() is None:
            main = psutil.Process(self.process.pid)
            for process in [main, *main.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Send SIGTERM, wait for the process to exit and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def request_stop(self) -> None:
        """Send SIGTERM and return at once, as a stop takes seconds: `wait_for_stopped_servers` waits for the exit.

        Does nothing after `kill`.
        """
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            _stopping.append(self)


def wait_for_stopped_servers() -> dict[Path, int]:
    """Wait for all servers that were asked to stop; return their exit statuses by log file."""
    statuses = {server.log: server.process.wait(STOP_TIMEOUT_S) for server in _stopping}
    _stopping.clear()
    return statuses


@contextlib.contextmanager
def serving(
    log: Path, target: str = "service.py:svc", wrapper: Sequence[str] = (), **environment: str
) -> Iterator[Server]:
    """Start a service as `start_server` does; ask it to stop on exit."""
    server = start_server(log, target, None, wrapper, **environment)
    try:
        yield server
    finally:
        server.request_stop()


def base_environment() -> dict[str, str]:
    """Return this process's environment without the variables that the processes of one service share."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_TRITON_")}


def serve_expecting_failure(
    port: int | None = None, target: str = "service.py:svc", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Start the service where it cannot run and wait until it exits; `port` defaults to a free one."""
    address = ["--host", "127.0.0.1", "--port", str(port or free_ports(1)[0])]
    return subprocess.run(
        [Path(sys.executable).parent / "bentoml", "serve", target, *address],
        cwd=ROOT,
        env={**base_environment(), "BENTOML_DO_NOT_TRACK": "True", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=READY_TIMEOUT_S,
    )


def make_repository(folder: Path, weights: str) -> Path:
    """Copy the model repository to a new `folder` with model files of these weights; return the folder."""
    generated = shutil.ignore_patterns("*.onnx", "weights.json", "__pycache__")
    shutil.copytree(ROOT / "model_repository", folder, symlinks=True, ignore=generated)
    Preparer(folder, print).prepare(weights)
    return folder


def write_other_weights(repository: Path, version: int = 1, name: str = "other") -> str:
    """Write weights of this name that give other masks than the built-in weights; return the name."""
    networks = model.builtin()
    for tensor in (tensor for network in networks for tensor in network.graph.initializer):
        if (values := numpy_helper.to_array(tensor)).ndim > 1 and values.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(values * np.float32(1.01), tensor.name))
    identity = Identity(name, hashlib.sha256(name.encode()).hexdigest(), trained=True, note="", architecture="builtin")
    model.export(networks, VersionFolders(repository, version), identity, name)
    return name


def write_broken_encoder(repository: Path, version: int) -> None:
    """Replace the encoder of a version by one that returns the same embedding for every image."""
    embedding = np.ones((1, 64, 64, 256), np.float16)
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["images"], ["batch"], end=1),
            helper.make_node("Concat", ["batch", "sizes"], ["shape"], axis=0),
            helper.make_node("Expand", ["embedding", "shape"], ["image_embeddings"]),
        ],
        "broken",
        [
            helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", 1024, 1024, 3]),
            helper.make_tensor_value_info("sizes_hw", TensorProto.INT32, ["N", 2]),
        ],
        [helper.make_tensor_value_info("image_embeddings", TensorProto.FLOAT16, ["N", 64, 64, 256])],
        [
            numpy_helper.from_array(embedding, "embedding"),
            numpy_helper.from_array(np.array(embedding.shape[1:]), "sizes"),
        ],
    )
    broken = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(broken, repository / "mobile_sam_encoder" / str(version) / "model.onnx")


def start_server(
    log: Path, target: str = "service.py:svc", port: int | None = None, wrapper: Sequence[str] = (), **environment: str
) -> Server:
    """Launch a server and wait until it is ready. Arguments are those of `launch_server`."""
    return launch_server(log, target, port, wrapper, **environment).wait_until_ready()


def launch_server(
    log: Path, target: str = "service.py:svc", port: int | None = None, wrapper: Sequence[str] = (), **environment: str
) -> Server:
    """Launch a server without waiting for it, so that several can start at once.

    Args:
        log: file for its output; embeddings go to a folder beside it unless `environment` sets another.
        target: argument of `bentoml serve`.
        port: port on 127.0.0.1; a free one by default.
        wrapper: a command that executes the command appended to it, such as `prlimit --nofile=256 --`.
        environment: variables added to this process's environment.
    """
    free_port, metrics_port = free_ports(2)
    port = port or free_port
    bentoml = str(Path(sys.executable).parent / "bentoml")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*wrapper, bentoml, "serve", target, "--host", "127.0.0.1", "--port", str(port)],
            cwd=ROOT,
            env={
                **base_environment(),
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
