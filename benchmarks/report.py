"""Output of measurements: JSON files and generated blocks of the documentation."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from benchmarks.closed import Cells
from benchmarks.figures import percentile
from benchmarks.service import ROOT

OUTPUT = ROOT / "out" / "bench"
PAGE = ROOT / "docs" / "performance.md"
OFFICIAL, BUILTIN = "official", "builtin"
BLOCKS = ("machine", "answer", "goals", "closed", "open", "where", "cold", "interactive", "parts", "closed-builtin")
"""Blocks of the page that a full run generates, all but the last with the official weights."""
PEERS, CLICKS_IN_PAGE = "peers", "page"
"""Blocks of the page that `make bench-peers` and `make bench-page` generate."""


def cells_as_json(cells: Cells) -> list[dict[str, Any]]:
    """Return all cells with their rounds."""
    found = []
    for cell, outcomes in cells.rounds.items():
        rounds = [
            {
                "seconds": outcome.seconds,
                "latencies_ms": [round(latency * 1e3, 3) for latency in outcome.latencies],
                "server_cpu_seconds": cpu,
                "client_cpu_seconds": outcome.client_cpu_seconds,
            }
            for outcome, cpu in zip(outcomes, cells.cpu_seconds[cell], strict=True)
        ]
        p50, p95, p99 = (percentile(cells.latencies(cell), percent) * 1e3 for percent in (50, 95, 99))
        summary = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "answers_per_s": cells.throughputs(cell)}
        found.append({**dataclasses.asdict(cell), **summary, **cells.per_request(cell), "rounds": rounds})
    return found


def write_json(path: Path, results: Mapping[str, Any]) -> None:
    """Write a JSON file, with dataclasses as objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with new text in its generated blocks, between `<!-- bench NAME -->` and `<!-- end -->`.

    Raises:
        ValueError: the page lacks a block.
    """
    names = re.findall(r"^<!-- bench (\S+) -->$", page, re.MULTILINE)
    if missing := sorted(set(blocks) - set(names)):
        raise ValueError(f"expected generated blocks {missing}, got {sorted(names)}")

    def fill(match: re.Match[str]) -> str:
        return f"<!-- bench {match[1]} -->\n{blocks[match[1]]}\n<!-- end -->" if match[1] in blocks else match[0]

    return re.sub(r"^<!-- bench (\S+) -->\n.*?<!-- end -->$", fill, page, flags=re.DOTALL | re.MULTILINE)
