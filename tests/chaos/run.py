"""`python -m tests.chaos.run`: every scenario, and a table of figures beside their goals.

It ends with status 1 where a goal is missed. The service is that of this checkout, with the models of its repository.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from tests.chaos import victims
from tests.chaos.figures import Figure, Scenario, Start, starter
from tests.chaos.scenarios import bodies, clock, connections, costly, disks, forging, kills, load

SCENARIOS: dict[str, Scenario] = {
    "triton": kills.killed_triton,
    "stubs": kills.killed_stubs,
    "hung": kills.stopped,
    "hung-stub": partial(kills.stopped, who=lambda server: victims.stubs(server, "mobile_sam_encoder")[0]),
    "worker": kills.killed_worker,
    "service": kills.killed_service,
    "stop": kills.told_to_stop,
    "overload": load.overload,
    "bombs": bodies.bombs,
    "fuzz": load.fuzzed,
    "soak": load.soak,
    "guided": load.guided,
    "tmp-full": disks.full_temporary_folder,
    "cache-full": disks.full_cache,
    "shm-full": disks.full_shared_memory,
    "run-folder": disks.cleaned_folders,
    "clock": clock.moved_clock,
    "forged": forging.forged_lines,
    "costly": costly.costly,
    "answers": costly.unread,
    "heads": connections.heads,
    "half-open": connections.half_open,
    "few-descriptors": partial(connections.half_open, connections=700, through=connections.FEW_DESCRIPTORS),
}


def table(figures: list[Figure]) -> str:
    """The figures as Markdown."""
    lines = ["| what happens | figure | measured | goal | |", "|---|---|---|---|---|"]
    for figure in figures:
        sign = "at least" if figure.at_least else "at most"
        value, goal = (f"{number:.4g} {figure.unit}".strip() for number in (figure.value, figure.goal))
        verdict = "met" if figure.met else "**missed**"
        lines.append(f"| {figure.scenario} | {figure.what} | {value} | {sign} {goal} | {verdict} |")
    return "\n".join(lines)


def to_the_end(name: str, scenario: Scenario, start: Start) -> Iterator[Figure]:
    """The figures of a scenario; one that breaks off is a missed goal, and no obstacle to the others."""
    try:
        yield from scenario(start)
    except (Exception, pytest.fail.Exception) as error:
        traceback.print_exc()
        yield Figure(name, f"broke off with {type(error).__name__}", 1, 0)


def main() -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(description="Maltreat the service, and see how it bears it.")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, help="these scenarios")
    parser.add_argument("--soak-minutes", type=float, default=0, help="how long the soak takes; 0: none")
    parser.add_argument("--guided-minutes", type=float, default=0, help="how long guided fuzzing takes; 0: none")
    parser.add_argument("--stops", type=int, default=20, help="how often the service is told to stop")
    parser.add_argument("--output", type=Path, default=Path("out/chaos"), help="folder for results and logs")
    options = parser.parse_args()
    lengths = {"soak": options.soak_minutes, "guided": options.guided_minutes}
    names = options.only or [name for name in SCENARIOS if lengths.get(name, 1)]
    figures: list[Figure] = []
    options.output.mkdir(parents=True, exist_ok=True)
    start = starter(Path(tempfile.mkdtemp(dir=options.output, prefix="logs-")).resolve())
    for name in names:
        length = {"minutes": lengths[name]} if lengths.get(name) else {}
        scenario: Scenario = partial(SCENARIOS[name], **length)
        if name == "stop":
            scenario = partial(kills.told_to_stop, times=options.stops)
        for figure in to_the_end(name, scenario, start):
            figures.append(figure)
            print(table([figure]).splitlines()[-1], flush=True)
    (options.output / "figures.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    (options.output / "table.md").write_text(table(figures) + "\n")
    missed = [figure for figure in figures if not figure.met]
    print(f"{len(figures)} figures, {len(missed)} missed; see {options.output}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
