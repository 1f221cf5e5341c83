"""Measure the effect of Triton's dynamic batching with eight concurrent callers, with and without it in turns.

python -m examples.classification.measure
python -m examples.classification.measure --full

Requests go to the service (JSON with a JPEG), and to the network alone in Triton (pixels). The networks are untrained,
which does not change the time: a narrow one or, with --full, one of wide_resnet101_2's size.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import requests
from google.protobuf import text_format
from PIL import Image
from tqdm import tqdm
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.http import InferenceServerClient, InferRequestedOutput

from benchmarks.figures import percentile, ratios, spread, table
from benchmarks.load import LoadClient, Request, Run
from benchmarks.service import Service, free_ports, serving
from examples.classification.architecture import NARROW, Architecture, random_state
from examples.classification.build import CONFIG, NET, Weights, export
from examples.classification.graph import SIZE
from examples.classification.prepare import REPOSITORY
from utils.triton.inference import infer_input

CALLERS, ROUNDS = 8, 10
ON, OFF = "on", "off"
SERVICE, NET_ALONE = "the service", "the network alone"


def repositories(folder: Path, net: Architecture) -> dict[str, Path]:
    """Create two copies of the model repository with an untrained network, with and without dynamic batching."""
    copies = {name: folder / name for name in (ON, OFF)}
    shutil.copytree(REPOSITORY, copies[ON], ignore=shutil.ignore_patterns("*.onnx", "labels.txt", "weights.json"))
    export(random_state(net), Weights("random", "measured"), None, copies[ON])
    shutil.copytree(copies[ON], copies[OFF])
    config = text_format.Parse((copies[OFF] / CONFIG).read_text(), ModelConfig())
    config.ClearField("dynamic_batching")
    (copies[OFF] / CONFIG).write_text(text_format.MessageToString(config))
    return copies


def make_requests() -> dict[str, list[Request]]:
    """Return one request of random noise per caller, for the service and for the network alone."""
    generator = np.random.default_rng(0)
    requests_of: dict[str, list[Request]] = {SERVICE: [], NET_ALONE: []}
    for _ in range(CALLERS):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (256, 256, 3), np.uint8)).save(file, "JPEG")
        document = json.dumps({"image": base64.b64encode(file.getvalue()).decode(), "top_k": 5})
        requests_of[SERVICE].append(Request("/classify", {"Content-Type": "application/json"}, document.encode()))
        pixels = infer_input("pixels", "UINT8", generator.integers(0, 256, (1, SIZE, SIZE, 3), np.uint8))
        logits = InferRequestedOutput("logits", binary_data=True)
        body, length = InferenceServerClient.generate_request_body([pixels], outputs=[logits])
        headers = {"Inference-Header-Content-Length": str(length)}
        requests_of[NET_ALONE].append(Request(f"/v2/models/{NET.parts[0]}/infer", headers, body))
    return requests_of


@contextmanager
def service(repository: Path) -> Iterator[Service]:
    """Run the example's service on a model repository."""
    grpc_port, metrics_port = free_ports(2)
    environment = {
        "MODEL_REPOSITORY": str(repository),
        "GRPC_PORT": str(grpc_port),
        "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
    }
    with serving("classification", ["bentoml", "serve", "examples.classification.service:svc"], environment) as server:
        yield Service(server.process, server.port, f"http://127.0.0.1:{metrics_port}/metrics")


def counts(metrics_url: str) -> tuple[int, int]:
    """Return the numbers of images and runs of the network since the start."""
    text = requests.get(metrics_url, timeout=5).text
    images, runs = (
        sum(int(count) for count in re.findall(rf'^{name}\{{model="wide_resnet101_2".*?\}} (\d+)', text, re.MULTILINE))
        for name in ("nv_inference_count", "nv_inference_exec_count")
    )
    return images, runs


@dataclass
class Arm:
    """Measurements of one server and one kind of request."""

    latencies: list[float] = field(default_factory=list)
    """Latencies in seconds."""
    throughputs: list[float] = field(default_factory=list)
    """Answers per second in each round."""
    images: int = 0
    runs: int = 0

    def ask(self, client: LoadClient, server: Service, run: Run) -> None:
        """Run one round."""
        before = counts(server.metrics_url)
        outcome = client.run(run)
        images, runs = (now - then for now, then in zip(counts(server.metrics_url), before, strict=True))
        self.latencies += outcome.latencies
        self.throughputs.append(len(run.requests) / outcome.seconds)
        self.images, self.runs = self.images + images, self.runs + runs

    def row(self) -> tuple[object, ...]:
        """Return answers per second, latencies in milliseconds and images per run."""
        p50, p95 = (percentile(self.latencies, percent) * 1e3 for percent in (50, 95))
        return spread(self.throughputs), p50, p95, self.images / self.runs


def measure(servers: dict[str, Service], count: int) -> dict[tuple[str, str], Arm]:
    """Measure all arms in turns, round by round, after one warm-up round.

    Args:
        servers: servers by `ON` and `OFF`.
        count: requests per round.
    """
    requests_of = make_requests()
    arms = {(way, name): Arm() for way in requests_of for name in servers}
    with LoadClient() as client:
        for number in tqdm(range(ROUNDS + 1), desc=f"{CALLERS} callers", unit="round"):
            for (way, name), arm in arms.items():
                server = servers[name]
                port = server.port if way == SERVICE else server.triton_port()
                sent = [requests_of[way][index % CALLERS] for index in range(count)]
                (arm if number else Arm()).ask(client, server, Run(port, sent, CALLERS))
    return arms


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="network of wide_resnet101_2's size, not a narrow one")
    full = parser.parse_args().full
    net, count, size = (Architecture(), 2 * CALLERS, "full-size") if full else (NARROW, 25 * CALLERS, "narrow")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        copies = repositories(folder, net)
        arms = measure({name: stack.enter_context(service(path)) for name, path in copies.items()}, count)
    print(f"{size} network, {CALLERS} callers, {os.cpu_count()} cores, {ROUNDS} rounds of {count} images")
    rows = [(way, name, *arm.row()) for (way, name), arm in arms.items()]
    print(table(("", "batching", "answers/s (quartiles)", "p50 ms", "p95 ms", "images per run"), rows))
    for way in (SERVICE, NET_ALONE):
        print(f"{way}, on / off: {ratios(arms[way, ON].throughputs, arms[way, OFF].throughputs)} times the answers")


if __name__ == "__main__":
    main()
