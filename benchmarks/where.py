"""Where the time of a request goes, by what Triton counts of each of its models."""

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
    """A part of a request, and its share of it."""

    name: str
    seconds: float
    share: float


def durations(text: str) -> Durations:
    """What Triton's metrics say."""
    return {(model, counter): int(us) / 1e6 for counter, model, us in LINE.findall(text) if counter in COUNTERS}


def profile(service: Service, arm: Arm, clicks: Sequence[Request]) -> list[Step]:
    """The mean of these requests, sent one after the other, taken apart."""
    connection = Connection(arm.port)
    before = durations(requests.get(service.metrics_url, timeout=5).text)
    taken = [seconds(lambda: connection.ask(request)) for request in tqdm(clicks, desc="where the time goes")]  # noqa: B023
    connection.close()
    after = durations(requests.get(service.metrics_url, timeout=5).text)
    spent = {key: (after[key] - before.get(key, 0.0)) / len(clicks) for key in after}
    return steps(statistics.mean(taken), spent)


def steps(whole: float, spent: Durations) -> list[Step]:
    """The parts of a request.

    Args:
        whole: seconds that the client waited.
        spent: of that, per request.
    """

    def of(model: str, counter: str = "request") -> float:
        return spent.get((model, counter), 0.0)

    models = of(ENCODER) + of(DECODER)
    # A new image is asked for among the known ones first, where there is a refusal and no model is run.
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
    """One after the other."""
    rows = [
        (kind, step.name, step.seconds * 1e3, f"{step.share:.0%}") for kind, found in profiles.items() for step in found
    ]
    return table(("", "step", "mean ms", "share"), rows)
