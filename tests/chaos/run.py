"""Fault injection and attacks on the service of this checkout: `python -m tests.chaos.run`.

Runs all scenarios and prints a table of figures and goals. The exit status is 1 if a goal is missed.
"""

import argparse
import json
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks.service import prepare
from tests.chaos import victims
from tests.chaos.figures import AnswerKind, Figure, Scenario, Start, starter
from tests.chaos.scenarios import (
    adapters,
    bodies,
    clock,
    connections,
    costly,
    disks,
    everything,
    forging,
    kills,
    load,
    slow_redis,
)

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
    "tmp-full": disks.full_temporary_folder,
    "cache-full": disks.full_cache,
    "shm-full": disks.full_shared_memory,
    "run-folder": disks.cleaned_folders,
    "clock": clock.moved_clock,
    "forged": forging.forged_lines,
    "costly": costly.costly,
    "answers": costly.unread,
    "adapters": adapters.adapters,
    "everything": everything.everything,
    "slow-redis": slow_redis.slow_redis,
    "heads": connections.heads,
    "half-open": connections.half_open,
    "few-descriptors": partial(connections.half_open, connections=700, through=connections.FEW_DESCRIPTORS),
}


OTHER_WEIGHTS = ("costly", "answers")
"""Scenarios to repeat with further weights: the results of the others do not depend on the model."""
NO_FAULTS = (
    *("overload", "bombs", "fuzz", "costly", "answers", "adapters", "everything"),
    *("heads", "half-open", "few-descriptors", "forged"),
)
"""Scenarios with hostile requests only, without injected faults."""
OVERLOADS = ("overload", "costly", "answers", "adapters", "everything")
REFUSALS = ("overloaded", "inference-timeout")
"""Reasons of 5xx answers that are no failures in `OVERLOADS`."""
MIN_ANSWERS = 100_000


def table(figures: list[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| what happens | figure | measured | goal | |", "|---|---|---|---|---|"]
    for figure in figures:
        sign = "at least" if figure.at_least else "at most"
        value, goal = (f"{number:.4g} {figure.unit}".strip() for number in (figure.value, figure.goal))
        verdict = "met" if figure.met else "**missed**"
        lines.append(f"| {figure.scenario} | {figure.label} | {value} | {sign} {goal} | {verdict} |")
    return "\n".join(lines)


def run_scenario(name: str, scenario: Scenario, start: Start) -> Iterator[Figure]:
    """Yield the figures of a scenario; an exception counts as a missed goal."""
    try:
        yield from scenario(start)
    except (Exception, pytest.fail.Exception) as error:
        traceback.print_exc()
        yield Figure(name, f"aborted with {type(error).__name__}", 1, 0)


def failures(answers: Mapping[str, Counter[AnswerKind]]) -> Iterator[Figure]:
    """Yield figures of the service's own failures.

    Args:
        answers: answers in each scenario without injected faults.
    """
    bad: Counter[AnswerKind] = Counter()
    refused = 0
    for name, counts in answers.items():
        for answer, count in counts.items():
            if name in OVERLOADS and answer.reason in REFUSALS:
                refused += count
            elif answer.status >= 500:
                bad[answer] += count
    total = sum(counts.total() for counts in answers.values())
    seen = ", ".join(f"{answer.status} {answer.reason} {count}" for answer, count in bad.most_common())
    name = "all hostile tools together, no fault injected"
    label = f"answers of 500 and more ({seen or 'none'}; {refused} more refused as too many)"
    yield Figure(name, label, bad.total(), 0)
    yield Figure(name, "answers", total, MIN_ANSWERS, at_least=True)


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description="Inject faults, attack the service and measure recovery.")
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, help="run only these scenarios")
    parser.add_argument(
        "--weights", nargs="+", default=["builtin"], help="run all scenarios with the first weights, some with each"
    )
    parser.add_argument("--soak-minutes", type=float, default=0, help="length of the soak test; 0: none")
    parser.add_argument("--search-minutes", type=float, default=1, help="length of the search for costly requests")
    parser.add_argument("--stops", type=int, default=10, help="number of stops under load")
    parser.add_argument("--output", type=Path, default=Path("out/chaos"), help="folder for results and logs")
    options = parser.parse_args()
    names = options.only or [name for name in SCENARIOS if name != "soak" or options.soak_minutes]
    settings: dict[str, dict[str, float]] = {
        "soak": {"minutes": options.soak_minutes or 20},
        "stop": {"times": options.stops},
        "costly": {"search_s": 60 * options.search_minutes},
    }
    figures: list[Figure] = []
    answers: dict[str, Counter[AnswerKind]] = defaultdict(Counter)
    options.output.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp(dir=options.output, prefix="logs-")).resolve()

    def add(figure: Figure) -> None:
        figures.append(figure)
        print(table([figure]).splitlines()[-1], flush=True)

    for number, weights in enumerate(options.weights):
        repository = str(prepare(weights))
        for name in names:
            if number and name not in OTHER_WEIGHTS:
                continue
            counts = answers[name] if name in NO_FAULTS else Counter[AnswerKind]()
            start = starter(logs / f"{weights}-{name}", counts, MOBILE_SAM_MODEL_REPOSITORY=repository)
            scenario: Scenario = partial(SCENARIOS[name], **settings.get(name, {}))
            for figure in run_scenario(name, scenario, start):
                add(replace(figure, scenario=f"{weights}: {figure.scenario}") if number else figure)
    if not options.only:
        for figure in failures(answers):
            add(figure)
    (options.output / "figures.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    (options.output / "table.md").write_text(table(figures) + "\n")
    missed = [figure for figure in figures if not figure.met]
    print(f"{len(figures)} figures, {len(missed)} missed; see {options.output}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
