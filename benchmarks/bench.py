"""Comparison of the service with the raw model and its peers.

    python -m benchmarks.bench           a quick run of about 3 minutes
    python -m benchmarks.bench --full    everything; writes the figures and plots of docs/performance.md

Measured with the official weights and, for the page, also with the built-in ones: their encoder is many times smaller,
which makes overhead visible. The arms take turns within each round, so that other load on the machine affects all of
them alike; a ratio is the median of the rounds' ratios. All figures go to out/bench/.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import answer, cold, goals, interactive, machine, parts, plots, suite
from benchmarks.arms import engines_of
from benchmarks.load import LoadClient
from benchmarks.photo import photo
from benchmarks.raw import RawModel
from benchmarks.report import BLOCKS, BUILTIN, OFFICIAL, OUTPUT, PAGE, with_blocks, write_json
from benchmarks.repository import prepare
from benchmarks.service import ROOT, running

PICTURES = ROOT / "docs" / "images"
ANSWER_PICTURE, LATENCY_PICTURE = "bench-answer.svg", "bench-latency.svg"
SUITE, COLD, INTERACTIVE, PARTS = KINDS = ("suite", "cold", "interactive", "parts")


class Report:
    """Results so far, printed as soon as they are measured."""

    def __init__(self, full: bool) -> None:
        self.blocks: dict[str, str] = {}
        self.json: dict[str, Any] = {"full": full, "machine": machine.machine()}
        self.judged: list[goals.Goal] = []
        rounds = f"{suite.ROUNDS if full else suite.ROUNDS_QUICK} rounds."
        self.show("machine", f"{machine.line(self.json['machine'])} {rounds}")

    def show(self, name: str, text: str) -> None:
        """Print a block and keep it for the page."""
        self.blocks[name] = text
        print(f"\n== {name} ==\n{text}", flush=True)

    def judge(self, found: Sequence[goals.Goal]) -> None:
        """Add goals and show all so far."""
        self.judged += found
        self.show("goals", goals.as_table(self.judged))

    def write(self) -> None:
        """Write the results so far to `OUTPUT`."""
        write_json(OUTPUT / "results.json", {**self.json, "tables": self.blocks})
        (OUTPUT / "tables.md").write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in self.blocks.items()))


def measure(kinds: tuple[str, ...], full: bool, client: LoadClient, report: Report) -> None:
    """Measure with the official weights."""
    repository = prepare(OFFICIAL)
    if SUITE in kinds:
        results = suite.measure(repository, client, full)
        for name, text in results.blocks().items():
            report.show(name, text)
        report.judge(results.judged)
        report.json[OFFICIAL] = results.as_json()
        plots.answer(answer.answers_per_second(results.cells), OUTPUT / ANSWER_PICTURE)
        plots.latency(results.cells, OUTPUT / LATENCY_PICTURE)
    if {COLD, INTERACTIVE, PARTS} & set(kinds):
        with running(repository) as service:
            raw = RawModel(repository, *engines_of(service, photo()))
            if COLD in kinds:
                report.show(COLD, cold.measure(service, raw))
        if INTERACTIVE in kinds:
            report.show(INTERACTIVE, interactive.measure(repository, raw, client))
        if PARTS in kinds:
            report.show(PARTS, parts.measure(raw))
    report.write()


def measure_builtin(client: LoadClient, report: Report) -> None:
    """Measure the closed loop with the built-in weights."""
    results = suite.measure(prepare(BUILTIN), client, full=False)
    report.show("closed-builtin", results.blocks()["closed"])
    report.judge([replace(goal, name=f"built-in weights: {goal.name}") for goal in results.judged])
    report.json[BUILTIN] = results.as_json()
    report.write()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="everything, about 10 minutes, and write the page")
    parser.add_argument("--only", choices=KINDS, help="one kind of measurement; does not write the page")
    arguments = parser.parse_args()
    with_page = arguments.full and not arguments.only
    if with_page:
        with_blocks(PAGE.read_text(), dict.fromkeys(BLOCKS, ""))  # fail now instead of after 10 minutes
    kinds = (arguments.only,) if arguments.only else KINDS if arguments.full else (SUITE,)
    report = Report(arguments.full)
    with LoadClient() as client:
        measure(kinds, arguments.full, client, report)
        if with_page:
            measure_builtin(client, report)
    if with_page:
        PAGE.write_text(with_blocks(PAGE.read_text(), report.blocks))
        for picture in (ANSWER_PICTURE, LATENCY_PICTURE):
            shutil.copy(OUTPUT / picture, PICTURES)
    print(f"wrote {OUTPUT}/results.json, tables.md and pictures")


if __name__ == "__main__":
    main()
