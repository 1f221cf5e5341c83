"""Measures what Triton's dynamic batching is worth to eight callers at once: the service with it and without, in turns.

python -m examples.classification.measure
python -m examples.classification.measure --full

Asked are the service, by JSON and JPEG, and in its Triton the net alone, by pixels. The nets are untrained, which takes
as long: the narrow one, and with --full one of wide_resnet101_2's size.
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
from utils.inference import infer_input

CALLERS, ROUNDS = 8, 10
ON, OFF = "on", "off"
SERVICE, NET_ALONE = "the service", "the net alone"


def repositories(folder: Path, net: Architecture) -> dict[str, Path]:
    """The example's model repository with an untrained net, in a folder, as it is and without dynamic batching."""
    made = {name: folder / name for name in (ON, OFF)}
    shutil.copytree(REPOSITORY, made[ON], ignore=shutil.ignore_patterns("*.onnx", "labels.txt", "weights.json"))
    export(random_state(net), Weights("random", "measured"), None, made[ON])
    shutil.copytree(made[ON], made[OFF])
    config = text_format.Parse((made[OFF] / CONFIG).read_text(), ModelConfig())
    config.ClearField("dynamic_batching")
    (made[OFF] / CONFIG).write_text(text_format.MessageToString(config))
    return made


def questions() -> dict[str, list[Request]]:
    """One for each caller, to the service and to the net alone: a JPEG of noise, and pixels of noise."""
    generator = np.random.default_rng(0)
    asked: dict[str, list[Request]] = {SERVICE: [], NET_ALONE: []}
    for _ in range(CALLERS):
        file = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (256, 256, 3), np.uint8)).save(file, "JPEG")
        document = json.dumps({"image": base64.b64encode(file.getvalue()).decode(), "top_k": 5})
        asked[SERVICE].append(Request("/classify", {"Content-Type": "application/json"}, document.encode()))
        pixels = infer_input("pixels", "UINT8", generator.integers(0, 256, (1, SIZE, SIZE, 3), np.uint8))
        logits = InferRequestedOutput("logits", binary_data=True)
        body, length = InferenceServerClient.generate_request_body([pixels], outputs=[logits])
        headers = {"Inference-Header-Content-Length": str(length)}
        asked[NET_ALONE].append(Request(f"/v2/models/{NET.parts[0]}/infer", headers, body))
    return asked


@contextmanager
def service(repository: Path) -> Iterator[Service]:
    """The example's service on a model repository, ready."""
    grpc_port, metrics_port = free_ports(2)
    environment = {
        "MODEL_REPOSITORY": str(repository),
        "GRPC_PORT": str(grpc_port),
        "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
    }
    with serving("classification", ["bentoml", "serve", "examples.classification.service:svc"], environment) as server:
        yield Service(server.process, server.port, f"http://127.0.0.1:{metrics_port}/metrics")


def counts(metrics_url: str) -> tuple[int, int]:
    """Images that the net has had since the start, and runs that it had them in."""
    text = requests.get(metrics_url, timeout=5).text
    images, runs = (
        sum(int(count) for count in re.findall(rf'^{name}\{{model="wide_resnet101_2".*?\}} (\d+)', text, re.MULTILINE))
        for name in ("nv_inference_count", "nv_inference_exec_count")
    )
    return images, runs


@dataclass
class Arm:
    """What came of asking one server in one way."""

    latencies: list[float] = field(default_factory=list)
    """Seconds."""
    throughputs: list[float] = field(default_factory=list)
    """Answers a second, of each round."""
    images: int = 0
    runs: int = 0

    def ask(self, client: LoadClient, server: Service, run: Run) -> None:
        """Run a round."""
        before = counts(server.metrics_url)
        outcome = client.run(run)
        images, runs = (now - then for now, then in zip(counts(server.metrics_url), before, strict=True))
        self.latencies += outcome.latencies
        self.throughputs.append(len(run.requests) / outcome.seconds)
        self.images, self.runs = self.images + images, self.runs + runs

    def row(self) -> tuple[object, ...]:
        """Answers a second, latencies in milliseconds, and how many images the net had in a run."""
        p50, p95 = (percentile(self.latencies, percent) * 1e3 for percent in (50, 95))
        return spread(self.throughputs), p50, p95, self.images / self.runs


def measure(servers: dict[str, Service], count: int) -> dict[tuple[str, str], Arm]:
    """All arms in turns, round by round, after one that does not count.

    Args:
        servers: by `ON` and `OFF`.
        count: requests of a round.
    """
    asked = questions()
    arms = {(way, name): Arm() for way in asked for name in servers}
    with LoadClient() as client:
        for number in tqdm(range(ROUNDS + 1), desc=f"{CALLERS} callers", unit="round"):
            for (way, name), arm in arms.items():
                server = servers[name]
                port = server.port if way == SERVICE else server.triton_port()
                sent = [asked[way][index % CALLERS] for index in range(count)]
                (arm if number else Arm()).ask(client, server, Run(port, sent, CALLERS))
    return arms


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="a net of wide_resnet101_2's size, not a narrow one")
    full = parser.parse_args().full
    net, count, size = (Architecture(), 2 * CALLERS, "full-size") if full else (NARROW, 25 * CALLERS, "narrow")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        made = repositories(folder, net)
        arms = measure({name: stack.enter_context(service(path)) for name, path in made.items()}, count)
    print(f"{size} net, {CALLERS} callers, {os.cpu_count()} cores, {ROUNDS} rounds of {count} images")
    rows = [(way, name, *arm.row()) for (way, name), arm in arms.items()]
    print(table(("", "batching", "answers/s (quartiles)", "p50 ms", "p95 ms", "images a run"), rows))
    for way in (SERVICE, NET_ALONE):
        print(f"{way}, on / off: {ratios(arms[way, ON].throughputs, arms[way, OFF].throughputs)} times the answers")


if __name__ == "__main__":
    main()
