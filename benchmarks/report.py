"""What was measured as a file of JSON, and as the generated parts of the documentation."""

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
"""The parts of the page that one full run generates; all but the last are of the official weights."""
PEERS, CLICKS_IN_PAGE = "peers", "page"
"""The parts of the page that `make bench-peers` and `make bench-page` generate."""


def cells_as_json(cells: Cells) -> list[dict[str, Any]]:
    """Each cell with its rounds."""
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
    """Write everything; dataclasses as objects."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def with_blocks(page: str, blocks: Mapping[str, str]) -> str:
    """Return a page with new text in some of its generated parts, from `<!-- bench NAME -->` to `<!-- end -->`.

    Raises:
        ValueError: the page has no part of a name.
    """
    places = re.findall(r"^<!-- bench (\S+) -->$", page, re.MULTILINE)
    if missing := sorted(set(blocks) - set(places)):
        raise ValueError(f"expected a generated part for each of {missing}, got {sorted(places)}")

    def fill(match: re.Match[str]) -> str:
        return f"<!-- bench {match[1]} -->\n{blocks[match[1]]}\n<!-- end -->" if match[1] in blocks else match[0]

    return re.sub(r"^<!-- bench (\S+) -->\n.*?<!-- end -->$", fill, page, flags=re.DOTALL | re.MULTILINE)
