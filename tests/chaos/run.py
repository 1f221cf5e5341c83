"""Fault injection and attacks on the service of this checkout: `make chaos`.

Each scenario is a test, which fails if a goal is missed. A table of all figures and goals is
printed as they are measured, and written to out/chaos. `pytest -s tests/chaos/run.py -k "triton or
heads"` runs some of them; CHAOS=full makes them longer, with a soak test.
"""

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from harness import ROOT, Server
from harness.repository import prepare
from tests.chaos.figures import AnswerKind, Figure, Scenario, failures, starter, table
from tests.chaos.scenarios import (
    adapters,
    bodies,
    bodies_loop,
    cheap,
    clock,
    connections,
    costly,
    everything,
    forging,
    kills,
    load,
    shared_memory,
    sharing,
    slow_redis,
    soak,
)

FULL = os.environ.get("CHAOS") == "full"
OUTPUT = ROOT / "out" / "chaos"
SCENARIOS: dict[str, Scenario] = {
    "triton": kills.killed_triton,
    "stubs": kills.killed_stubs,
    "hung": kills.stopped,
    "hung-stub": partial(
        kills.stopped, who=lambda server: Server.stubs(server, "mobile_sam_encoder")[0]
    ),
    "worker": kills.killed_worker,
    "service": kills.killed_service,
    "stop": partial(kills.stopped_under_load, times=20 if FULL else 10),
    "shm-full": shared_memory.full_shared_memory,
    "clock": clock.moved_clock,
    "slow-redis": slow_redis.slow_redis,
    **({"soak": partial(soak.soak, minutes=60)} if FULL else {}),
}
"""Injected faults."""
ATTACKS: dict[str, Scenario] = {
    "bombs": bodies.bombs,
    "bodies-loop": bodies_loop.bodies_loop,
    "fuzz": load.fuzzed,
    "forged": forging.forged_lines,
    "heads": connections.heads,
    "half-open": connections.half_open,
    "cheap-answers": cheap.cheap_answers,
}
"""Hostile requests only."""
OVERLOADS: dict[str, Scenario] = {
    "overload": load.overload,
    "adapters": adapters.adapters,
    "everything": everything.everything,
    "costly": costly.costly,
    "answers": costly.unread,
    **{
        f"sharing-{name}": partial(sharing.crowded, attack=attack)
        for name, attack in sharing.ATTACKS.items()
    },
    "sharing-ipv6": sharing.ipv6,
    "sharing-nginx": partial(sharing.proxied, front=sharing.behind_nginx, absorbed=("bodies",)),
    "sharing-envoy": partial(sharing.proxied, front=sharing.behind_envoy),
}
"""Hostile requests; some may be refused because there are too many."""
ALL = SCENARIOS | ATTACKS | OVERLOADS
CASES = [("builtin", name) for name in ALL] + [("official", name) for name in ("costly", "answers")]
"""The results of the others do not depend on the weights."""

pytestmark = [pytest.mark.timeout(5400), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="session")
def folder() -> Path:
    """Return a new folder for logs."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=OUTPUT, prefix="logs-"))


@pytest.fixture(scope="session")
def add() -> Iterator[Callable[[Figure], Figure]]:
    """Return a function that prints and keeps a figure."""
    figures: list[Figure] = []

    def add(figure: Figure) -> Figure:
        figures.append(figure)
        print(table([figure]).splitlines()[-1], flush=True)
        return figure

    yield add
    (OUTPUT / "figures.json").write_text(
        json.dumps([asdict(figure) for figure in figures], indent=1)
    )
    (OUTPUT / "table.md").write_text(table(figures) + "\n")
    print(
        f"{len(figures)} figures, {sum(not figure.met for figure in figures)} missed; see {OUTPUT}"
    )


@pytest.fixture(scope="session")
def answers() -> Mapping[str, Counter[AnswerKind]]:
    """Return the answers to the hostile requests of each scenario."""
    return defaultdict(Counter)


@pytest.mark.parametrize(("weights", "name"), CASES, ids=["-".join(case) for case in CASES])
def test_goals_are_met(weights, name, folder, add, answers):
    start = starter(
        folder / f"{weights}-{name}",
        Counter() if name in SCENARIOS else answers[name],
        MOBILE_SAM_MODEL_REPOSITORY=str(prepare(weights)),
    )
    prefix = "" if weights == "builtin" else f"{weights}: "
    try:
        found = [
            add(replace(figure, scenario=f"{prefix}{figure.scenario}"))
            for figure in ALL[name](start)
        ]
    except Exception as error:
        add(Figure(name, f"aborted with {type(error).__name__}", 1, 0))
        raise
    assert all(figure.met for figure in found)


def test_answers_to_all_hostile_requests_are_no_failures(add, answers):
    if answers.keys() < (ATTACKS | OVERLOADS).keys():
        pytest.skip("not all attacks were selected")
    found = [add(figure) for figure in failures(answers, OVERLOADS)]
    assert all(figure.met for figure in found)
