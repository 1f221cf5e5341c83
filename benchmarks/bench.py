"""How much Triton behind BentoML brings: the service beside the raw model and its peers.

    python -m benchmarks.bench           what can be said in about 5 minutes
    python -m benchmarks.bench --full    everything; writes the figures into docs/performance.md, and their pictures

Measured with a model of MobileSAM's size (untrained: time does not depend on the values of its weights) and with the
built-in weights, whose encoder is many times smaller, so that everything around it weighs more. The arms take turns
within each round, so that whatever else the machine does meets all of them; a ratio is the median over the rounds of
each round's ratio. All figures go to out/bench/.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from benchmarks import cold, interactive, machine, parts, plots, suite
from benchmarks.arms import engines_of
from benchmarks.load import LoadClient
from benchmarks.photo import photo
from benchmarks.raw import RawModel
from benchmarks.report import BLOCKS, WEIGHTS, with_blocks, write_json
from benchmarks.service import ROOT, running
from mobile_sam_onnx import Preparer

OUTPUT = ROOT / "out" / "bench"
PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "images"
SUITE, COLD, INTERACTIVE, PARTS = KINDS = ("suite", "cold", "interactive", "parts")


def prepare(weights: str) -> Path:
    """A model repository with these weights."""
    repository = ROOT / ".cache" / f"benchmark-{weights}" / "model_repository"
    shutil.copytree(
        ROOT / "model_repository",
        repository,
        ignore=shutil.ignore_patterns("*.onnx", "weights.json", "__pycache__"),
        dirs_exist_ok=True,
    )
    Preparer(repository, print).prepare(weights)
    return repository


class Report:
    """Shows what was measured as soon as it is there, and keeps it."""

    def __init__(self, full: bool) -> None:
        self.blocks: dict[str, str] = {}
        self.json: dict[str, Any] = {"full": full, "machine": machine.machine()}
        rounds = f"{suite.ROUNDS} rounds, {'all' if full else 'part'} of the combinations."
        self.show("machine", f"{machine.line(self.json['machine'])} {rounds}")

    def show(self, name: str, text: str) -> None:
        """Print a part, and keep it for the page."""
        self.blocks[name] = text
        print(f"\n== {name} ==\n{text}", flush=True)

    def write(self) -> None:
        """Write what there is so far to `OUTPUT`."""
        write_json(OUTPUT / "results.json", {**self.json, "tables": self.blocks})
        (OUTPUT / "tables.md").write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in self.blocks.items()))


def measure(weights: str, kinds: tuple[str, ...], full: bool, client: LoadClient, report: Report) -> None:
    """Measure with one set of weights."""
    repository = prepare(weights)
    if SUITE in kinds:
        results = suite.measure(repository, client, full)
        for name, text in results.blocks().items():
            report.show(f"{name}-{weights}", text)
        report.json[weights] = results.as_json()
        plots.latency(results.cells, OUTPUT / f"bench-latency-{weights}.svg")
        plots.throughput(results.cells, OUTPUT / f"bench-throughput-{weights}.svg")
    if {COLD, INTERACTIVE, PARTS} & set(kinds):
        with running(repository) as service:
            raw = RawModel(repository, *engines_of(service, photo()))
            if COLD in kinds:
                report.show(f"cold-{weights}", cold.measure(service, raw))
        if INTERACTIVE in kinds:
            report.show(f"interactive-{weights}", interactive.measure(repository, raw, client))
        if PARTS in kinds and weights == WEIGHTS[0]:
            report.show("parts", parts.measure(raw))
    report.write()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="everything, about half an hour, and write the page")
    parser.add_argument("--only", choices=KINDS, help="one kind of measurement; the page is left alone")
    parser.add_argument("--weights", choices=WEIGHTS, help="one set of weights; the page is left alone")
    arguments = parser.parse_args()
    with_page = arguments.full and not arguments.only and not arguments.weights
    if with_page:
        with_blocks(PAGE.read_text(), dict.fromkeys(BLOCKS, ""))  # half an hour before it would be too late
    kinds = (arguments.only,) if arguments.only else KINDS if arguments.full else (SUITE,)
    report = Report(arguments.full)
    with LoadClient() as client:
        for weights in (arguments.weights,) if arguments.weights else WEIGHTS:
            measure(weights, kinds, arguments.full, client, report)
    if with_page:
        PAGE.write_text(with_blocks(PAGE.read_text(), report.blocks))
        for weights in WEIGHTS:
            for kind in ("latency", "throughput"):
                shutil.copy(OUTPUT / f"bench-{kind}-{weights}.svg", PICTURES)
    print(f"wrote {OUTPUT}/results.json, tables.md and pictures")


if __name__ == "__main__":
    main()
