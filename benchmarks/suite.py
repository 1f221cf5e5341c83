"""Main suite of measurements of the service with one set of weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import answer, closed, goals, open_loop, where
from benchmarks.arms import OURS, Ours, all_arms, engines_of, json_request
from benchmarks.engines import ONNX_RUNTIME
from benchmarks.load import Connection, LoadClient
from benchmarks.photo import CLICK, photo, unseen
from benchmarks.raw import RawModel
from benchmarks.report import cells_as_json
from benchmarks.service import Service, running
from benchmarks.timing import seconds
from benchmarks.workloads import CACHED, COLD, MIXED, Clicks

ROUNDS, ROUNDS_QUICK = 5, 3
STARTS = 3
"""Starts of the service, to measure the first request after each."""
CLICKS_TAKEN_APART = {COLD: 10, CACHED: 40}
OPEN_LOOP_REQUESTS = {CACHED: 400, MIXED: 200}

Engines = tuple[str, str]
"""Engines of encoder and decoder."""


@dataclass
class Results:
    """Results with one set of weights."""

    engines: Engines
    cells: closed.Cells
    loops: list[open_loop.OpenLoop]
    profiles: dict[str, list[where.Step]]
    judged: list[goals.Goal]
    extras: goals.Extras
    resident_bytes: dict[str, int] = field(default_factory=dict)
    """Resident memory at the end, by arm."""

    def blocks(self) -> dict[str, str]:
        """Return the tables by name."""
        memory = ", ".join(f"{name} {size / 1e9:.2f} GB" for name, size in self.resident_bytes.items())
        encoder, decoder = self.engines
        return {
            "answer": f"{answer.as_table(self.cells)}\n\nThis service chose: encoder {encoder}, decoder {decoder}.",
            "closed": f"{self.cells.as_table()}\n\nResident memory, shared pages counted in each process: {memory}.",
            **({"open": open_loop.as_table(self.loops)} if self.loops else {}),
            "where": where.as_table(self.profiles),
        }

    def as_json(self) -> dict[str, Any]:
        """Return all results in a form that JSON can hold."""
        return {
            "engine": dict(zip(("encoder", "decoder"), self.engines, strict=True)),
            "goals": [{**vars(goal), "met": goal.met} for goal in self.judged],
            "closed_loop": cells_as_json(self.cells),
            "open_loop": self.loops,
            "where_the_time_goes": self.profiles,
            "extras": {key: value for key, value in vars(self.extras).items() if key != "loops"},
            "resident_bytes": self.resident_bytes,
        }


def raw_name(engines: Engines) -> str:
    """Return the name of the raw model on these engines, for the tables."""
    return f"raw, {' and '.join(dict.fromkeys(engines))}"


def raw_arms(repository: Path, engines: Engines) -> closed.RawArms:
    """Return the raw model on the service's engines and on the plain peers' engine."""
    arms: dict[tuple[str, str], Callable[[], object]] = {}
    for choice in dict.fromkeys([engines, (ONNX_RUNTIME, ONNX_RUNTIME)]):
        raw = RawModel(repository, *choice)
        works = {COLD: raw.click_on_a_new_image, closed.ENCODE: raw.encode, CACHED: raw.decode}
        arms |= {(raw_name(choice), workload): work for workload, work in works.items()}
    return arms


def first_request(service: Service, clicks: Clicks) -> float:
    """Return the latency of the first click, on a new image, in seconds."""
    arm = Ours(OURS, service)
    request = clicks.new(arm)
    return seconds(lambda: Connection(service.port).ask(request))


def answer_bytes(service: Service, mask_format: str) -> int:
    """Return the size of the answer to a click on `photo()`, which must be known, without a picture."""
    image_id = hashlib.sha256(photo()).hexdigest()
    request = json_request(image_id=image_id, pos_coords=[CLICK], mask_format=mask_format, segmented_image="none")
    return len(Connection(service.port).ask(request)[0])


def measure(repository: Path, client: LoadClient, full: bool) -> Results:
    """Run all measurements of the suite with a model repository."""
    clicks = Clicks()
    firsts = []
    for _ in range(STARTS - 1 if full else 0):
        with running(repository) as service:
            firsts.append(first_request(service, clicks))
    with running(repository) as service:
        firsts.append(first_request(service, clicks))
        engines = engines_of(service, unseen(photo(), 2**48))
        raw = raw_arms(repository, engines)
        with (
            running(repository, engine="onnxruntime") as same_engine,
            all_arms(repository, service, same_engine, engines) as arms,
        ):
            setup = closed.Setup(arms, client, clicks)
            cells = closed.measure(setup, raw, ROUNDS if full else ROUNDS_QUICK, full)
            loops = open_loops(setup, cells) if full else []
            resident = {name: arm.server.resident_bytes() for name, arm in arms.items()}
            profiles = {
                f"{workload} click": where.profile(service, arms[OURS], clicks.of(workload, arms[OURS], count))
                for workload, count in CLICKS_TAKEN_APART.items()
            }
            extras = goals.Extras(loops, answer_bytes(service, "rle"), answer_bytes(service, "json"), firsts)
    judged = goals.goals(cells, raw_name(engines), extras)
    return Results(engines, cells, loops, profiles, judged, extras, resident)


def open_loops(setup: closed.Setup, cells: closed.Cells) -> list[open_loop.OpenLoop]:
    """Measure the service at a share of its capacity."""
    return [
        open_loop.measure(setup, cells, OURS, workload, arrivals=arrivals, count=count)
        for workload, count in OPEN_LOOP_REQUESTS.items()
        for arrivals in open_loop.ARRIVALS
    ]
