"""What a number of annotators needs, computed from measured figures: `python -m benchmarks.capacity
100 10000`

docs/capacity.md has the formulas and the results; capacity.yaml the assumptions and the figures,
with their units.
"""

import argparse
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fleet import SMALL
from benchmarks.machine import describe_machine
from benchmarks.photo import CLICK, new_photo
from benchmarks.servers import click_request, image_fields
from benchmarks.service import BUILTIN, OFFICIAL, running
from benchmarks.stats import seconds, table
from harness.load import Request, json_request, open_loop
from harness.repository import prepare
from harness.server import Server, cpu_seconds, proportional_bytes

FILE = Path(__file__).with_suffix(".yaml")
ASSUMPTIONS, FIGURES = yaml.safe_load(FILE.read_text()).values()
LIMITS = {"annotators": (1, 1e9), "images_per_minute": (0.01, 1e3), "cores_per_replica": (1, 1e3)}
LIMITS |= dict.fromkeys(("active", "new_share", "utilisation"), (0.05, 1))
ANNOTATORS = (100, 10_000, 1_000_000)
WAYS = {
    "previews": {},
    "no previews": {"requests_per_click": 1},
    "local decoding": {"requests_per_click": 0},
}
IMAGES, RATE, IDLE_S = 40, 5.0, 20.0
"""Images of a measurement, more than a process keeps in memory; requests per second: without
pauses each takes less processor time; seconds without requests."""
CHECKS_PER_S = 8.0
"""Health checks by the clusters of two Envoys."""


def scenario(**changes: float) -> dict[str, float]:
    """Return the assumptions with changes; raise ValueError if one is not valid."""
    assert changes.keys() <= ASSUMPTIONS.keys(), changes
    values: dict[str, float] = ASSUMPTIONS | changes
    for name, value in values.items():
        least, most = LIMITS.get(name, (0, 1e9))
        if not least <= value <= most:
            raise ValueError(f"{name}: expected {least:g} to {most:g}, got {value:g}")
    return values


def predict(
    given: Mapping[str, float], costs: Mapping[str, Any], at_least: int = 1
) -> dict[str, float]:
    """Return what a scenario needs, by the formulas of docs/capacity.md, with `at_least` so many
    replicas.
    """
    people, cores = given["annotators"] * given["active"] / 60, given["cores_per_replica"]
    opened, clicks = people * given["images_per_minute"], people * given["clicks_per_minute"]
    new, prompts = opened * given["new_share"], clicks * given["requests_per_click"]
    fetched, replicas = 0 if prompts else opened, given["replicas"] or at_least
    homes = (
        1 if given["hashed"] else replicas * (1 - (1 - 1 / replicas) ** ((opened + prompts) / new))
    )
    encodes = new * (1 if given["redis"] else homes)
    jobs = [
        (encodes, costs["encode_s"]),
        (opened, given["file_bytes"] * costs["upload_s_per_mb"] / 1e6),
    ]
    jobs += [(prompts, costs["prompt_s"]), (fetched, costs["embedding_s"])]
    busy, squares = (sum(count * cpu_s**power for count, cpu_s in jobs) for power in (1, 2))
    needed = math.ceil(
        busy / (cores * given["utilisation"] - costs["idle_cores"]) + given["spare_replicas"]
    )
    if not given["replicas"] and needed > replicas:
        return predict(given, costs, needed)
    load = (busy / replicas + costs["idle_cores"]) / cores
    queue = load ** (math.sqrt(2 * (cores + 1)) - 1) / cores / (1 - load) if load < 1 else math.inf
    written = new * (given["file_bytes"] + costs["embedding_bytes"])
    stored, shared = written * given["kept_minutes"] * 60, written * given["redis"]
    memory = (replicas * costs["memory_bytes"] + stored * given["redis"]) / 2**30
    received = opened * given["file_bytes"] * 4 / 3 + prompts * costs["prompt_in_bytes"]
    return {
        "replicas": replicas,
        "cores": replicas * cores,
        "cores in use": load * replicas * cores,
        "active annotators per core in use": 60 * people / load / replicas / cores,
        "mean wait for a core, ms": 1e3 * queue * squares / busy / 2,
        "requests/s": opened + prompts + fetched,
        "encoded images/s": encodes,
        "memory, with Redis, GiB": memory,
        "disk of a replica, GB": stored * homes / replicas / 1e9,
        "Redis, GB": stored * given["redis"] / 1e9,
        "written to Redis, MB/s": shared / 1e6,
        "read from Redis, MB/s": shared * (homes - 1) / 1e6,
        "received, MB/s": received / 1e6,
        "sent, MB/s": (prompts * costs["prompt_out_bytes"] + fetched * costs["embedding_bytes"])
        / 1e6,
        "price per hour": replicas * cores * given["core_hour_price"]
        + memory * given["gib_hour_price"],
    }


def measure(server: Server) -> dict[str, float]:
    """Return the costs of a replica without other callers; raise RuntimeError if a request
    fails.
    """
    files = [new_photo() for _ in range(IMAGES)]
    ids = [hashlib.sha256(file).hexdigest() for file in files]
    uploads = [json_request(image_fields(file), "/embed") for file in files]
    prompts = [click_request(image_id, CLICK, "rle") for image_id in ids] * 4
    embeddings = [Request(f"/embeddings/{image_id}") for image_id in ids]

    def cpu_s(requests: Sequence[Request], rate: float = RATE, idle: float = 0.0) -> float:
        before, taken = (
            cpu_seconds(server.family()),
            seconds(lambda: open_loop(server.port, requests, rate).all_ok()),
        )
        return cpu_seconds(server.family()) - before - idle * taken

    cpu_s([click_request(new_photo(), CLICK, "rle") for _ in range(2)])  # warm-up
    idle = cpu_s([Request("/readyz")] * int(CHECKS_PER_S * IDLE_S), CHECKS_PER_S) / IDLE_S
    works = (uploads, uploads, prompts, embeddings)
    new, known, prompt, embedding = (cpu_s(work, idle=idle) / len(work) for work in works)
    return {
        "encode_s": new - known,
        "upload_s_per_mb": 1e6 * known / len(files[0]),
        "prompt_s": prompt,
        "embedding_s": embedding,
        "idle_cores": idle,
        "memory_bytes": proportional_bytes(server.family()),
        "embedding_bytes": len(server.send(embeddings[0]).content),
        "prompt_in_bytes": len(prompts[0].data()),
        "prompt_out_bytes": len(server.send(prompts[0]).content),
    }


def report(annotators: Iterable[float]) -> str:
    """Return a table of what numbers of annotators need with the official weights, in all ways
    to work.
    """
    columns = {
        f"{people:,.0f}, {way}": {"annotators": people, **WAYS[way]}
        for people in annotators
        for way in WAYS
    }
    predictions = [predict(scenario(**changes), FIGURES[OFFICIAL]) for changes in columns.values()]
    rows = [[name, *(prediction[name] for prediction in predictions)] for name in predictions[0]]
    return f"{FIGURES[OFFICIAL]['source']}\n\n{table(('', *columns), rows)}"


def write_figures(weights: str) -> None:
    """Measure the costs of a replica with these weights, and write them into capacity.yaml."""
    # The figures of the built-in weights are compared with those of `make scale`.
    settings = SMALL if weights == BUILTIN else {}
    with running(prepare(weights), **settings) as server:
        costs = {name: round(value, 5) for name, value in measure(server).items()}
    head = FILE.read_text().partition("figures:\n")[0]
    source = describe_machine(versions=False)
    figures = FIGURES | {weights: {"source": source, **costs}}
    FILE.write_text(head + yaml.safe_dump({"figures": figures}, sort_keys=False, width=200))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    numbers = "numbers of annotators; default: those of docs/capacity.md"
    parser.add_argument("annotators", nargs="*", type=float, help=numbers)
    parser.add_argument(
        "--measure", metavar="WEIGHTS", help="write the figures of these weights into capacity.yaml"
    )
    options = parser.parse_args()
    if options.measure:
        write_figures(options.measure)
        return
    try:
        print(report(options.annotators or ANNOTATORS))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
