"""Capacity planner: cores, replicas, memory and network for a rate of clicks, from measurements on one machine.

    python -m benchmarks.scale --clicks-per-second 1000 --new-images-share 0.05
    python -m benchmarks.scale --write      writes the tables of docs/scale.md

Costs of a request are read from docs/performance.md, which `make bench-full` writes. Latencies under load are
simulated. GPU figures are published ones; none was measured.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.costs import Costs, mean, read_costs, rows_of
from benchmarks.figures import percentile, short, table
from benchmarks.load import poisson
from benchmarks.open_loop import SEED
from benchmarks.replicas import KNOWN, NEW, Balancer, least_busy, random_replica, simulate
from benchmarks.report import with_blocks
from benchmarks.service import ROOT

MEASURED = ROOT / "docs" / "performance.md"
PAGE = ROOT / "docs" / "scale.md"

CORES = 2
"""Cores of the measured machine, and of each replica."""
CLICKS_PER_SECOND = (10.0, 1_000.0, 100_000.0)
NEW_SHARE = 0.05
"""One new image in twenty clicks."""
UTILISATION = 0.7
IMAGE_BYTES = 400_000
"""Size of the measurements' JPEG file of 2 megapixels."""
ENTRY_BYTES = 256 * 64 * 64 * 2 + IMAGE_BYTES
"""Size of a cache entry: the embedding, (64, 64, 256) float16, and the file."""
CACHE_BYTES = 2 * 2**30
"""Cache of a replica, `MOBILE_SAM_EMBEDDING_CACHE_BYTES`."""
REQUEST_BYTES = 600
"""Size of a click by `image_id`, including headers."""
KEPT_MINUTES = 30
"""Time for which Redis should keep an image."""
GPU_ENCODER_S, GPU_DECODER_S = 0.008, 0.004
"""Published for MobileSAM on one GPU; not measured here."""

BLOCKS = ("needs", "waits", "check")
"""Generated blocks of the page."""
UTILISATIONS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
GROUPS: tuple[tuple[int, str, Balancer], ...] = (
    (1, "", least_busy),
    (10, "to the least busy", least_busy),
    (40, "to the least busy", least_busy),
    (40, "by caller", random_replica),
)
"""Simulated numbers of replicas, with label and balancer."""
REQUESTS = 40_000
"""Requests per simulation."""


@dataclass(frozen=True)
class Needs:
    """Resources for a load."""

    clicks: float
    cores: float
    replicas: int
    cached_minutes: float
    """Time for which a replica's cache keeps an image."""
    redis_bytes: float
    redis_bytes_per_s: dict[str, float]
    """Traffic, by routing of requests: each caller bound to a replica (`by caller`), or to `any`."""
    in_bytes_per_s: float
    out_bytes_per_s: float
    gpus: int
    gpu_cores: float
    """CPU cores besides the GPUs."""


def needs(costs: Costs, clicks: float, new_share: float, utilisation: float, image_bytes: float) -> Needs:
    """Return the resources for a load.

    Args:
        costs: costs of requests.
        clicks: clicks per second.
        new_share: share of clicks on new images, 0 to 1.
        utilisation: mean utilisation of the cores, 0 to 1.
        image_bytes: size of an image file.
    """
    cores = clicks * costs.core_seconds(new_share) / utilisation
    replicas = max(1, math.ceil(cores / CORES))
    entry, new = ENTRY_BYTES - IMAGE_BYTES + image_bytes, clicks * new_share
    # A caller bound to a replica finds the image there. Otherwise each of the 1 / new_share clicks on an image goes to
    # a random replica, which fetches the image on its first click.
    seen_by = replicas * (1 - (1 - 1 / replicas) ** (1 / new_share))
    written = new * entry if replicas > 1 else 0.0
    fetched = new * (seen_by - 1) * entry
    each_image = image_bytes * 4 / 3
    gpu_work = clicks * mean({KNOWN: GPU_DECODER_S, NEW: GPU_ENCODER_S + GPU_DECODER_S}, new_share) / utilisation
    return Needs(
        clicks,
        cores,
        replicas,
        CACHE_BYTES / entry / (new / replicas) / 60,
        new * KEPT_MINUTES * 60 * entry if replicas > 1 else 0.0,
        {"by caller": written, "any": written + fetched},
        clicks * REQUEST_BYTES + new * each_image,
        clicks * costs.answer_bytes,
        max(1, math.ceil(gpu_work)),
        clicks * mean(costs.beside_model, new_share) / utilisation,
    )


def needs_table(found: Sequence[Needs]) -> str:
    """Return a table with one column per load."""
    rows: list[tuple[str, list[str]]] = [
        ("cores", [_count(one.cores) for one in found]),
        (f"replicas of {CORES} cores", [_count(one.replicas) for one in found]),
        ("a replica remembers an image for", [_minutes(one.cached_minutes) for one in found]),
        (f"Redis: room for {KEPT_MINUTES} minutes of images", [_bytes(one.redis_bytes) for one in found]),
        ("Redis: network, a caller keeps to a replica", [_bits(one.redis_bytes_per_s["by caller"]) for one in found]),
        ("Redis: network, any replica", [_bits(one.redis_bytes_per_s["any"]) for one in found]),
        ("network in", [_bits(one.in_bytes_per_s) for one in found]),
        ("network out, masks without pictures", [_bits(one.out_bytes_per_s) for one in found]),
        ("*in place of these cores, by published figures:* GPUs", [_count(one.gpus) for one in found]),
        ("*beside the GPUs:* cores", [_count(one.gpu_cores) for one in found]),
    ]
    return table(("clicks a second", *(_count(one.clicks) for one in found)), [(name, *cells) for name, cells in rows])


def waits(costs: Costs, new_share: float, requests: int = REQUESTS) -> str:
    """Simulate latencies by number of replicas and utilisation; return a table."""
    rows = []
    for count, routing, balancer in GROUPS:
        for utilisation in UTILISATIONS:
            rate = utilisation * count * CORES / costs.core_seconds(new_share)
            arrivals = poisson(rate, requests, SEED)
            result = simulate(costs.works, arrivals, new_share, count=count, cores=CORES, balancer=balancer, seed=SEED)
            both = (result.seconds[kind] for kind in (KNOWN, NEW))
            figures = [percentile(times, percent) * 1e3 if times else "" for times in both for percent in (50, 95)]
            rows.append(
                (count, routing, f"{utilisation:.0%}", rate, *figures, f"{result.refused / result.arrived:.1%}")
            )
    columns = ("known, p50 ms", "p95 ms", "new, p50 ms", "p95 ms", "refused")
    return table(("replicas", "requests go", "cores in use", "clicks/s", *columns), rows)


def check_table(page: str) -> str:
    """Return a table that compares the simulation with the measured open loop, on the same schedule."""
    rows = []
    costs = read_costs(page)
    for row in rows_of(page, "open"):
        if (row["arm"], row[""], row["arrivals"]) != ("ours", "cached", "Poisson"):
            continue
        times = poisson(float(row["requests/s"]), int(row["requests"]), SEED)
        result = simulate(costs.works, times, 0.0, count=1, cores=CORES, balancer=least_busy, seed=SEED)
        found = [percentile(result.seconds[KNOWN], percent) * 1e3 for percent in (50, 95)]
        rows.append((row["requests/s"], row["p50 ms"], found[0], row["p95 ms"], found[1]))
    return table(("clicks/s", "p50 ms, measured", "simulated", "p95 ms, measured", "simulated"), rows)


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or isinstance(value, int) else short(value)


def _minutes(value: float) -> str:
    return f"{value / 60:.1f} hours" if value >= 120 else f"{value:.0f} minutes"


def _bytes(value: float) -> str:
    for size, unit in ((1e12, "TB"), (1e9, "GB")):
        if value >= size:
            return f"{short(value / size)} {unit}"
    return "none needed" if not value else f"{short(value / 1e6)} MB"


def _bits(bytes_per_s: float) -> str:
    for size, unit in ((1e12, "Tbit/s"), (1e9, "Gbit/s")):
        if bytes_per_s * 8 >= size:
            return f"{short(bytes_per_s * 8 / size)} {unit}"
    return "none" if not bytes_per_s else f"{short(bytes_per_s * 8 / 1e6)} Mbit/s"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--clicks-per-second",
        type=_positive,
        nargs="+",
        default=CLICKS_PER_SECOND,
        metavar="N",
        help="loads to plan for",
    )
    parser.add_argument("--new-images-share", type=_share, default=NEW_SHARE, help="share of clicks, 0 to 1 (0.05)")
    parser.add_argument("--utilisation", type=_share, default=UTILISATION, help="mean utilisation of the cores (0.7)")
    parser.add_argument("--image-bytes", type=_positive, default=IMAGE_BYTES, help="size of an image file (400000)")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/scale.md")
    given = parser.parse_args()
    page = MEASURED.read_text()
    costs = read_costs(page)
    found = [
        needs(costs, clicks, given.new_images_share, given.utilisation, given.image_bytes)
        for clicks in given.clicks_per_second
    ]
    texts = (needs_table(found), waits(costs, given.new_images_share), check_table(page))
    blocks = dict(zip(BLOCKS, texts, strict=True))
    for name, text in blocks.items():
        print(f"\n== {name} ==\n{text}", flush=True)
    if given.write:
        PAGE.write_text(with_blocks(PAGE.read_text(), blocks))
        print(f"wrote {PAGE}")


def _positive(text: str) -> float:
    return _number(text, math.inf, "a number above 0")


def _share(text: str) -> float:
    return _number(text, 1.0, "a number above 0, at most 1")


def _number(text: str, maximum: float, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value <= maximum and value < math.inf):
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value


if __name__ == "__main__":
    main()
