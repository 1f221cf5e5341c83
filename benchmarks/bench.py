"""The service beside the raw model: `python -m benchmarks.bench [--only cold, interactive or parts]`.

Measured twice: with a model of MobileSAM's size (untrained: time does not depend on the values of its weights) and with
the built-in weights, whose encoder is many times smaller, so that everything around it weighs more.

The arms take turns within each round, so that whatever else the machine does meets all of them; a figure is the median
over the rounds of each round's ratio.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from benchmarks import cold, interactive, parts
from benchmarks.raw import RawModel
from benchmarks.service import ROOT, running
from mobile_sam_onnx import Preparer

PARTS = ("cold", "interactive", "parts")
WEIGHTS = ("random", "builtin")


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    only = parser.parse_args().only
    repositories = {weights: prepare(weights) for weights in WEIGHTS}
    raws = {weights: RawModel(repository) for weights, repository in repositories.items()}
    cold.encoders(raws)
    if only in {None, "parts"}:
        parts.measure(raws["random"])
    for weights, repository in repositories.items():
        if only == "parts":
            break
        print(f"\n== {weights} weights ==", flush=True)
        if only in {None, "cold"}:
            with running(repository) as service:
                asker = cold.Asker(service)
                cold.latency(asker, raws[weights])
                cold.memory(asker, service)
        if only in {None, "interactive"}:
            interactive.measure(repository, raws[weights])


if __name__ == "__main__":
    main()
