"""Mean times of the stages of a request, from the service's metrics."""

import re
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import Executor

import requests

from benchmarks.servers import CACHED, COLD, ServerArm
from benchmarks.stats import table
from orchestrator.stages import REPORT_INTERVAL_S, Stage

SECONDS = re.compile(
    r'^mobile_sam_stage_seconds_total\{[^}]*\bstage="(\w+)"[^}]*\} (\S+)$', re.MULTILINE
)
REPORTED_AFTER_S = REPORT_INTERVAL_S + 0.5
"""Time after which the metrics have the stages of all answered requests."""
IN_ORDER = [stage for name, stage in vars(Stage).items() if name.isupper()]
COLUMNS = {COLD: "new image, ms", CACHED: "known image, ms"}


def measure(arm: ServerArm, counts: Mapping[str, int], client: Executor) -> str:
    """Return a table of the mean times of a lone caller's requests.

    Args:
        arm: the service; it knows the photo.
        counts: requests by workload, those of `COLUMNS`.
        client: process that sends the requests.

    Raises:
        RuntimeError: as `ServerArm.turn`.
    """
    times: dict[str, Mapping[str, float]] = {}
    whole: dict[str, float] = {}
    for workload in COLUMNS:
        before = stage_seconds(metrics(arm))
        turn = arm.turn(workload, 1, counts[workload], client)
        after = stage_seconds(metrics(arm))
        times[workload] = {
            stage: 1e3 * (after[stage] - before.get(stage, 0.0)) / counts[workload]
            for stage in after
        }
        whole[workload] = 1e3 * statistics.mean(turn.latencies)
    return as_table(times, whole)


def metrics(arm: ServerArm) -> str:
    """Return Triton's metrics once they have the stages of all answered requests."""
    time.sleep(REPORTED_AFTER_S)
    return requests.get(arm.server.metrics_url, timeout=60).text


def stage_seconds(text: str) -> dict[str, float]:
    """Return the seconds spent in each stage, over all models, from Triton's metrics."""
    spent: dict[str, float] = {}
    for stage, value in SECONDS.findall(text):
        spent[stage] = spent.get(stage, 0.0) + float(value)
    return spent


def as_table(times: Mapping[str, Mapping[str, float]], whole: Mapping[str, float]) -> str:
    """Return a table with a row for each stage, the rest of the time, and all of it.

    Args:
        times: milliseconds by workload and stage.
        whole: milliseconds of a request by workload.
    """
    rows: list[tuple[object, ...]] = []
    for stage in IN_ORDER:
        row = [times[workload].get(stage, 0.0) for workload in COLUMNS]
        if any(row):
            rows.append((stage, *row))
    rest = [whole[workload] - sum(times[workload].values()) for workload in COLUMNS]
    rows.append(("rest", *rest))
    rows.append(("whole request", *(whole[workload] for workload in COLUMNS)))
    return table(("stage", *COLUMNS.values()), rows)
