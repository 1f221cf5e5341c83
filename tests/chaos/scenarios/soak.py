"""Everybody's requests for a long time, and what each process of the service holds meanwhile."""

import contextlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from harness import Server
from harness.server import cpu_seconds
from tests.chaos.activities import OK, activities, all_day
from tests.chaos.figures import MEGABYTE, Figure, Start, listed, ready_afterwards, restarts
from tests.chaos.processes import memory_files, shared_memory
from utils.settings import INTEGRATIONS

CACHE_BYTES = 256 * MEGABYTE
"""Size of the cache of embeddings: it is full before the first sample that counts, and outlasts
the queue."""
WARM_UP_SHARE = 1 / 6
"""Part of the time after which samples count."""
SAMPLES_EVERY_S = 10.0
MIN_LOAD = 0.1
"""Processors that the service uses at least, or there is no load."""
PROCESS_GOAL_MB = 0.5
"""Goal for the growth of one process's resident memory, per minute."""
GOALS: Mapping[str, float] = {
    "resident memory, MB": 1.0,
    "memory files, MB": 0.1,
    "shared memory, MB": 0.1,
    "files of shared memory": 0.05,
    "cache of embeddings, MB": 0.5,
    "database of the queue, MB": 0.1,
    "descriptors": 0.2,
    "threads": 0.2,
}
"""Goals for the growth of each per minute."""


@dataclass(frozen=True)
class Sample:
    """What a service holds at one moment."""

    minute: float
    """Minutes since the start."""
    held: dict[str, float]
    """Amounts by the names of `GOALS`."""
    processes: dict[str, float]
    """Resident memory of each process in megabytes."""
    processor_s: float
    """Processor time of all processes since their start."""


def soak(start: Start, minutes: float = 20) -> Iterator[Figure]:
    """Let callers of all kinds send requests for a long time; nothing that the service holds
    should grow.
    """
    name = f"soak, {minutes:g} minutes"
    origin = "http://127.0.0.1:9"  # Label Studio's adapter needs one
    settings = {
        "MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(CACHE_BYTES),
        "MOBILE_SAM_INTEGRATIONS": ",".join(INTEGRATIONS),
        "MOBILE_SAM_IMAGE_ORIGINS": origin,
    }
    chosen = activities()
    with start(**settings) as server:
        with all_day(server, chosen) as results:
            samples = list(_samples(server, minutes))
        print(json.dumps(results), flush=True)
        yield from growth(
            name, [sample for sample in samples if sample.minute >= WARM_UP_SHARE * minutes]
        )
        for activity in chosen:
            yield from _outcomes(name, activity.name, results[activity.name])
        yield Figure(name, "restarts of Triton", restarts(server), 0)
        yield ready_afterwards(name, server)


def growth(name: str, samples: Sequence[Sample]) -> Iterator[Figure]:
    """Yield the growth of all that is held, and of each process."""
    throughout = set.intersection(*(set(sample.processes) for sample in samples))
    others = set.union(*(set(sample.processes) for sample in samples)) - throughout
    yield Figure(
        name,
        f"processes that ended or began ({', '.join(sorted(others)) or 'none'})",
        len(others),
        0,
    )
    used = (samples[-1].processor_s - samples[0].processor_s) / (
        60 * (samples[-1].minute - samples[0].minute)
    )
    yield Figure(name, "processors that the service used", used, MIN_LOAD, at_least=True)
    for what, goal in GOALS.items():
        yield _slope(name, what, [(sample.minute, sample.held[what]) for sample in samples], goal)
    for process in sorted(throughout):
        points = [(sample.minute, sample.processes[process]) for sample in samples]
        yield _slope(name, f"resident MB of {process}", points, PROCESS_GOAL_MB)


def _slope(name: str, what: str, points: Sequence[tuple[float, float]], goal: float) -> Figure:
    minutes, amounts = zip(*points, strict=True)
    label = f"{what}: growth from {amounts[0]:.1f} to {amounts[-1]:.1f}, at most {max(amounts):.1f}"
    return Figure(name, label, float(np.polyfit(minutes, amounts, 1)[0]), goal, "/min")


def _outcomes(name: str, activity: str, results: Counter[str]) -> Iterator[Figure]:
    done = results.total()
    yield Figure(name, f"{activity}: done", done, 1, at_least=True)
    yield Figure(name, f"{activity}: wrong of {done} ({listed(results, 4)})", done - results[OK], 0)


def _samples(server: Server, minutes: float) -> Iterator[Sample]:
    """Yield samples for so many minutes, and write each to a file beside the service's log."""
    began = time.monotonic()
    with server.log.with_name("samples.jsonl").open("w") as file:
        while (minute := (time.monotonic() - began) / 60) < minutes:
            with contextlib.suppress(psutil.NoSuchProcess):
                sample = _sample(server, minute)
                file.write(json.dumps(asdict(sample)) + "\n")
                file.flush()
                yield sample
            time.sleep(SAMPLES_EVERY_S)


def _sample(server: Server, minute: float) -> Sample:
    family = server.family()
    files = [file for file in (server.log.parent / "embeddings").rglob("*") if file.is_file()]
    databases = [file for file in files if ".sqlite3" in file.name]
    processes = {_name(process): process.memory_info().rss / MEGABYTE for process in family}
    held = {
        # Other services with the same libraries change proportional set sizes.
        "resident memory, MB": sum(processes.values()),
        "memory files, MB": memory_files(server) / MEGABYTE,
        "shared memory, MB": shared_memory(server) / MEGABYTE,
        "files of shared memory": len(server.regions()),
        "cache of embeddings, MB": sum(_size(file) for file in files if file not in databases)
        / MEGABYTE,
        "database of the queue, MB": sum(_size(file) for file in databases) / MEGABYTE,
        "descriptors": sum(process.num_fds() for process in family),
        "threads": sum(process.num_threads() for process in family),
    }
    return Sample(minute, held, processes, cpu_seconds(family))


def _name(process: psutil.Process) -> str:
    """Return the model of a process, the number of an API worker, or the program; with the
    process's number.
    """
    command = " ".join(process.cmdline())
    model = re.search(r" (\w+)_\d+_\d+ \S+$", command)
    worker = re.search(r"--worker-id (\d+)", command)
    if model:
        name = model[1]
    elif worker:
        name = f"API worker {worker[1]}"
    else:
        name = process.name()
    return f"{name} ({process.pid})"


def _size(file: Path) -> int:
    """Return the size of a file, 0 if it has gone."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
