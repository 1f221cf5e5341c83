"""Costs of requests, read from docs/performance.md."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from benchmarks.replicas import KNOWN, NEW, Work


@dataclass(frozen=True)
class Costs:
    """Measured costs of requests, by kind."""

    works: dict[str, Work]
    answer_bytes: float
    beside_model: dict[str, float]
    """Seconds outside encoder and decoder, which a GPU would not speed up."""

    def core_seconds(self, new_share: float) -> float:
        """Return the mean CPU seconds of a click."""
        return mean({kind: work.core_seconds for kind, work in self.works.items()}, new_share)


def mean(values: dict[str, float], new_share: float) -> float:
    """Return the mean over clicks on known and on new images."""
    return (1 - new_share) * values[KNOWN] + new_share * values[NEW]


def rows_of(page: str, block: str) -> list[dict[str, str]]:
    """Return the rows of the tables in a generated block, as dictionaries by column.

    Raises:
        ValueError: the page has no such block.
    """
    found = re.search(rf"^<!-- bench {re.escape(block)} -->\n(.*?)<!-- end -->$", page, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"expected the generated block {block} on the page of measurements, found none")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines() if line[:1] == "|"]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def read_costs(page: str) -> Costs:
    """Return the costs measured with the official weights, from the text of docs/performance.md."""
    closed = [row for row in rows_of(page, "closed") if row["arm"] == "ours"]
    works = {}
    for kind, workload in ((KNOWN, "cached"), (NEW, "cold")):
        rows = [row for row in closed if row[""] == workload]
        alone = next(row for row in rows if row["callers"] == "1")
        busiest = max(rows, key=lambda row: int(row["callers"]))
        p50, p95 = float(alone["p50 ms"]), float(alone["p95 ms"])
        works[kind] = Work(float(busiest["CPU ms"]) / 1e3, p50 / 1e3, math.log(p95 / p50) / 1.645)
    sent = max(float(row["answer bytes"]) for row in closed)
    beside = dict.fromkeys(works, 0.0)
    for row in rows_of(page, "where"):
        kind = KNOWN if row[""] == "cached click" else NEW
        if not row["step"].startswith(("mobile_sam_", "the whole")):
            beside[kind] += float(row["mean ms"]) / 1e3
    return Costs(works, sent, beside)
