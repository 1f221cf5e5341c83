"""Breakdown of a request's time, from Triton's counters of each model."""

import re
import statistics
from functools import partial

import requests
from tqdm import tqdm

from benchmarks.arms import CACHED, COLD, Ours
from benchmarks.figures import seconds, table
from benchmarks.load import Connection
from benchmarks.photo import CLICK, photo
from benchmarks.service import Service

KNOWN, NEW, ENCODER, DECODER = "mobile_sam_cached", "mobile_sam", "mobile_sam_encoder", "mobile_sam_decoder"
CLICKS = {COLD: 10, CACHED: 40}
"""Number of clicks by workload."""
COUNTERS = ("request", "compute_infer")
LINE = re.compile(r'^nv_inference_(\w+)_duration_us\{model="(\w+)",version="\d+"\} (\d+)', re.MULTILINE)

Durations = dict[tuple[str, str], float]
"""Seconds, by model and counter."""


def durations(text: str) -> Durations:
    """Parse the durations in Triton's metrics."""
    return {(model, counter): int(us) / 1e6 for counter, model, us in LINE.findall(text) if counter in COUNTERS}


def measure(service: Service) -> str:
    """Send clicks one after the other; return a table of the steps of the mean click."""
    rows: dict[str, dict[str, float]] = {}
    arm, connection = Ours(service), Connection(service.port)
    connection.ask(arm.click(photo(), CLICK))
    for workload, count in CLICKS.items():
        clicks = arm.clicks(workload, count)
        before = durations(requests.get(service.metrics_url, timeout=5).text)
        taken = [seconds(partial(connection.ask, click)) for click in tqdm(clicks, desc=f"steps of a {workload} click")]
        after = durations(requests.get(service.metrics_url, timeout=5).text)
        spent = {key: (after[key] - before.get(key, 0.0)) / count for key in after}
        for name, step_s in steps(statistics.mean(taken), spent).items():
            rows.setdefault(name, {})[workload] = step_s * 1e3
    header = ("mean ms", *(f"{workload} click" for workload in CLICKS))
    return table(header, [(name, *(row.get(workload, "") for workload in CLICKS)) for name, row in rows.items()])


def steps(whole: float, spent: Durations) -> dict[str, float]:
    """Split a request into steps; return the seconds of each that takes any, and of the whole request.

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
            f"{model}: computing": of(model, "compute_infer"),
            f"{model}: queue, tensors in and out": of(model) - of(model, "compute_infer"),
        }
    return {name: value for name, value in parts.items() if value} | {"the whole request": whole}
