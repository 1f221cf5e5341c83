"""Breakdown of a request's time, from Triton's counters of each model."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import requests
from tqdm import tqdm

from benchmarks.arms import Arm
from benchmarks.figures import table
from benchmarks.load import Connection, Request
from benchmarks.service import Service
from benchmarks.timing import seconds

KNOWN, NEW, ENCODER, DECODER = "mobile_sam_cached", "mobile_sam", "mobile_sam_encoder", "mobile_sam_decoder"
COUNTERS = ("request", "queue", "compute_input", "compute_infer", "compute_output")
LINE = re.compile(r'^nv_inference_(\w+)_duration_us\{model="(\w+)",version="\d+"\} (\d+)', re.MULTILINE)

Durations = dict[tuple[str, str], float]
"""Seconds, by model and counter."""


@dataclass(frozen=True)
class Step:
    """Step of a request and its share of the time."""

    name: str
    seconds: float
    share: float


def durations(text: str) -> Durations:
    """Parse the durations in Triton's metrics."""
    return {(model, counter): int(us) / 1e6 for counter, model, us in LINE.findall(text) if counter in COUNTERS}


def profile(service: Service, arm: Arm, clicks: Sequence[Request]) -> list[Step]:
    """Send requests one after the other; return the steps of the mean request."""
    connection = Connection(arm.port)
    before = durations(requests.get(service.metrics_url, timeout=5).text)
    taken = [seconds(lambda: connection.ask(request)) for request in tqdm(clicks, desc="where the time goes")]  # noqa: B023
    connection.close()
    after = durations(requests.get(service.metrics_url, timeout=5).text)
    spent = {key: (after[key] - before.get(key, 0.0)) / len(clicks) for key in after}
    return steps(statistics.mean(taken), spent)


def steps(whole: float, spent: Durations) -> list[Step]:
    """Split a request into steps.

    Args:
        whole: latency that the client saw, in seconds.
        spent: Triton's durations per request.
    """

    def of(model: str, counter: str = "request") -> float:
        return spent.get((model, counter), 0.0)

    models = of(ENCODER) + of(DECODER)
    # A new image is first looked up by the model for known images, which refuses without running another model.
    refusal = of(KNOWN) if of(NEW) else 0.0
    orchestrator = of(NEW) if of(NEW) else of(KNOWN)
    parts = {
        "client, HTTP, BentoML": whole - refusal - orchestrator,
        "Triton: not among the known images": refusal,
        "orchestrator's process": orchestrator - models,
    }
    for model in (ENCODER, DECODER):
        parts |= {
            f"{model}: waiting for its turn": of(model, "queue"),
            f"{model}: computing": of(model, "compute_infer"),
            f"{model}: tensors in and out": of(model) - of(model, "queue") - of(model, "compute_infer"),
        }
    found = [Step(name, value, value / whole) for name, value in parts.items() if value]
    return [*found, Step("the whole request", whole, 1.0)]


def as_table(profiles: dict[str, list[Step]]) -> str:
    """Return a table of all profiles."""
    rows = [
        (kind, step.name, step.seconds * 1e3, f"{step.share:.0%}") for kind, found in profiles.items() for step in found
    ]
    return table(("", "step", "mean ms", "share"), rows)
