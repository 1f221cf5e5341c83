"""Replicas behind Envoy under the clicks of annotators, while parts fail, restart and change.

    python -m benchmarks.scale                                   all rows; 11 minutes
    python -m benchmarks.scale --rows kill slow                  some rows
    python -m benchmarks.scale --target https://masks.example    what callers of a cluster see

scale.yaml has the scenario.
"""

import argparse
import math
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks.annotators import Annotators, Call
from benchmarks.capacity import FIGURES, predict, scenario
from benchmarks.fleet import BY_IMAGE, NOTICED_S, TURNS, Fleet, running
from benchmarks.machine import describe_machine
from benchmarks.photo import CLICK, POINTS, new_photo, photo
from benchmarks.service import BUILTIN
from benchmarks.stats import percentile, short, table
from harness import ROOT, free_ports
from harness.load import Request, client_process, crowd, json_request
from harness.repository import make_repository, prepare
from harness.server import cpu_seconds
from mobile_sam_client import Client
from tests.redis_server import RedisServer, redis_server
from tests.services import write_other_weights

WINDOW = 40
"""Clicks in a row, of which a tenth may be slow: they are about 2 s."""
FLOODER = "127.0.2.1"


@dataclass
class Bench:
    """The service under test, and what is found."""

    plan: dict[str, Any]
    urls: Mapping[str, str]
    """URLs by routing."""
    fleet: Fleet
    redis: RedisServer | None = None
    loads: list[Annotators] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    usual_s: float = 1.0
    """95th percentile of the clicks without a fault."""

    @contextmanager
    def load(self, routing: str = BY_IMAGE) -> Iterator[Annotators]:
        """Empty Redis, and let annotators work on new images during the block, and a while
        before and after it.
        """
        if self.redis:
            with self.redis.client() as client:
                client.flushall()
        self.loads.append(Annotators(self.urls[routing], self.plan))
        with self.loads[-1].working():
            yield self.loads[-1]

    def add(self, name: str, goal: str, measured: str, met: bool | None) -> None:
        """Add a row to the table; `met` is None without a goal."""
        self.rows.append([name, goal, measured, {None: "", True: "met", False: "**missed**"}[met]])
        print(*self.rows[-1], sep=" | ", flush=True)

    def slowdown(self, calls: Iterable[Call]) -> float:
        """Return the ratio of the clicks' 95th percentile to the usual one."""
        return p95(calls) / self.usual_s

    def spent(self) -> NDArray[np.float64]:
        """Return the processor seconds of the replicas, the bytes written to Redis, and those
        read from it.
        """
        cpu_s, stats = sum(cpu_seconds(server.family()) for server in self.fleet.replicas), {}
        if self.redis:
            with self.redis.client() as client:
                stats = client.info("stats")
        return np.array(
            [cpu_s, *(stats.get(f"total_net_{way}_bytes", 0) for way in ("input", "output"))]
        )


def clicks_of(calls: Iterable[Call]) -> list[Call]:
    """Return the clicks in the order of their start."""
    return sorted((call for call in calls if call.point >= 0), key=lambda call: call.began)


def p95(calls: Iterable[Call]) -> float:
    """Return the 95th percentile of the seconds of clicks, repeated requests included; NaN
    without clicks.
    """
    times = [call.seconds for call in clicks_of(calls)]
    return percentile(times, 95) if times else math.nan


def failures(calls: Iterable[Call]) -> int:
    """Return the number of requests that failed, those that were repeated with success included."""
    return sum(call.failures for call in calls)


def recovery_s(calls: Sequence[Call], began: float, limit_s: float) -> float:
    """Return the seconds after which at most a tenth of the clicks takes longer than a limit."""
    clicks, slowest = clicks_of(calls), 0.0
    for at in range(max(1, len(clicks) - WINDOW + 1)):
        slow = [call.ended - began for call in clicks[at : at + WINDOW] if call.seconds > limit_s]
        slowest = max(slowest, *slow) if len(slow) > WINDOW // 10 else slowest
    return slowest


def encodes(bench: Bench, routings: Collection[str] = (TURNS, BY_IMAGE)) -> None:
    """Measure encodes per image, the traffic of Redis and processor time, without faults."""
    used, seconds = {}, bench.plan["steady_s"]
    for routing in routings:
        name = f"{routing}, Redis" if bench.redis else routing
        with bench.load(routing) as load, load.event(name):
            before = bench.spent()
            time.sleep(seconds)
            used[routing] = (bench.spent() - before) / seconds
        bench.usual_s, count = p95(load.calls), sum(call.encodes for call in load.calls)
        per_image = count / len({call.image for call in load.calls})
        most = 1.01 if bench.redis else 1.05
        measured = (
            f"{per_image:.3f} (p95 {1e3 * bench.usual_s:.0f} ms, {failures(load.calls)} failed)"
        )
        goal, met = ("-", None) if routing == TURNS else (f"<= {most}", per_image <= most)
        bench.add(f"encodes per image, {name}", goal, measured, met)
    if bench.redis and TURNS in used:
        share, read = (sum(used[BY_IMAGE][at:]) / sum(used[TURNS][at:]) for at in (1, 2))
        measured = f"{short(share)}; read from Redis: {short(read)}"
        bench.add("Redis bytes, by image against round robin", "<= 0.1", measured, share <= 0.1)
    if bench.redis:
        check_model(bench, load.during(name), *used[BY_IMAGE].tolist())


def check_model(bench: Bench, calls: Sequence[Call], cores: float, *redis_bytes: float) -> None:
    """Compare the capacity model, given the calls, with the cores and the bytes of Redis per
    second.
    """
    opened, people = sum(call.point < 0 for call in calls), bench.plan["annotators"]
    per_person = 60 / bench.plan["steady_s"] / people
    rates = {
        "images_per_minute": opened * per_person,
        "clicks_per_minute": (len(calls) - opened) * per_person,
    }
    rates["new_share"] = min(1.0, max(0.05, sum(call.encodes for call in calls) / opened))
    habits = {
        "annotators": people,
        "replicas": bench.plan["replicas"],
        "active": 1,
        "requests_per_click": 1,
    }
    found = predict(
        scenario(**habits, **rates, file_bytes=len(photo()), hashed=1, redis=1), FIGURES[BUILTIN]
    )
    carried = found["written to Redis, MB/s"] + found["read from Redis, MB/s"]
    pairs = {
        "cores in use": (found["cores in use"], cores),
        "MB/s of Redis": (carried, sum(redis_bytes) / 1e6),
    }
    for name, (predicted, measured) in pairs.items():
        text = f"predicted {short(predicted)}, measured {short(measured)}"
        bench.add(
            f"capacity model, {name}", "within 20 %", text, abs(predicted / measured - 1) <= 0.2
        )


def join(bench: Bench) -> None:
    """Add a replica."""
    fleet, all_images = bench.fleet, Annotators(bench.urls[BY_IMAGE], bench.plan)
    with bench.load() as load:
        before = all_images.open_all()
        with load.event("one more replica"):
            fleet.replicas.append(fleet.launch(*free_ports(1)).wait_until_ready())
            fleet.proxies[BY_IMAGE].set_replicas([server.port for server in fleet.replicas])
            time.sleep(NOTICED_S)
        after = all_images.open_all()
    moved = sum(new.replica != old.replica for old, new in zip(before, after, strict=True)) / len(
        after
    )
    again, failed = (
        sum(call.encodes for call in after) / len(after),
        failures([*load.calls, *before, *after]),
    )
    met = 0.15 <= moved <= 0.25 and again <= moved and not failed
    goal = "15 to 25 % of the images move, no more are encoded again, 0 failed requests"
    bench.add(
        "one more replica",
        goal,
        f"{moved:.0%} moved, {again:.0%} encoded again, {failed} failed",
        met,
    )


def restart(bench: Bench) -> None:
    """Restart all replicas, one after another."""
    with bench.load() as load, load.event(name := "rolling restart"):
        bench.fleet.restart_all()
    failed, slowdown = failures(load.calls), bench.slowdown(load.during(name))
    measured = f"{failed} failed, p95 {short(slowdown)} x"
    bench.add(
        f"{name} of all replicas",
        "0 failed requests, p95 <= 2 x",
        measured,
        not failed and slowdown <= 2,
    )


def fault(bench: Bench, name: str, cause: AbstractContextManager[None]) -> None:
    """Measure what callers see of a fault of the first replica."""
    with bench.load() as load, cause, load.event(name):
        time.sleep(bench.plan["fault_s"])
    touched, victim = load.during(name), f"127.0.0.1:{bench.fleet.replicas[0].port}"
    homes = {call.image: call.replica for call in load.calls if call not in touched}
    slowdown = bench.slowdown(call for call in touched if homes.get(call.image, victim) != victim)
    lost, back_s = (
        sum(call.lost for call in load.calls),
        recovery_s(touched, load.events[name][0], 2 * bench.usual_s),
    )
    measured = (
        f"{lost} lost, {failures(load.calls)} repeated, {back_s:.1f} s, others' p95"
        f" {short(slowdown)} x"
    )
    goal = "0 lost after one retry, back within 10 s, others' p95 <= 2 x"
    bench.add(name, goal, measured, not lost and back_s <= 10 and slowdown <= 2)


def redis_faults(bench: Bench) -> None:
    """Kill, restart, stop and fill Redis."""
    redis = bench.redis
    assert redis
    with redis.client() as client, bench.load() as load:
        for name, begin, end in (
            ("Redis killed and restarted", redis.stop, redis.start),
            ("Redis slow", lambda: redis.send(signal.SIGSTOP), lambda: redis.send(signal.SIGCONT)),
            (
                "Redis full",
                lambda: client.config_set("maxmemory", 1),
                lambda: client.config_set("maxmemory", 0),
            ),
        ):
            with load.event(name):
                begin()
                time.sleep(bench.plan["fault_s"])
                end()
    for name in load.events:
        failed, slowdown = failures(load.during(name)), bench.slowdown(load.during(name))
        bench.add(
            name, "0 failed requests", f"{failed} failed, p95 {short(slowdown)} x", not failed
        )


def send_flood(
    port: int, request: Request, connections: int, rate: float, seconds: float
) -> tuple[int, int]:
    """Return how many requests of one caller with many connections were answered, and sent."""
    with crowd(
        port, lambda: request, connections, pause=connections / rate, address=FLOODER
    ) as replies:
        time.sleep(seconds)
    return len(replies.answered()), len(replies.all)


def flood(bench: Bench) -> None:
    """Let one caller send requests far above its limit, to all replicas."""
    limit, proxy = bench.plan["requests_per_minute"], bench.fleet.proxies[BY_IMAGE]
    with client_process() as process, bench.load() as load:
        with Client(proxy.url) as client:  # all replicas find the new image in Redis
            image_id = client.embed(new_photo()).image_id
        request = json_request(
            {"image_id": image_id, "pos_coords": [CLICK], "segmented_image": "none"}
        )
        process.submit(int).result()  # it has started
        with load.event("one caller floods"):
            flood_of = (
                request,
                *(bench.plan[f"flood_{key}"] for key in ("connections", "per_second", "s")),
            )
            answered, sent = process.submit(send_flood, proxy.port, *flood_of).result()
    slowdown = bench.slowdown(load.during("one caller floods"))
    measured = f"others' p95 {short(slowdown)} x, {answered} of {sent} requests answered"
    # More than the limit if a new window begins.
    most = int(limit * (1 + bench.plan["flood_s"] / 60))
    goal = f"others' p95 <= 2 x, all replicas together answer at most {most}"
    bench.add("one caller floods", goal, measured, slowdown <= 2 and answered <= most)


def masks(url: str) -> dict[tuple[str, int], str]:
    """Return the masks by weights and point, of a new image with the pixels of all others."""
    with Client(url) as client:
        opened = client.embed(new_photo())
        results = [
            client.segment(opened, pos_coords=point, segmented_image="none") for point in POINTS
        ]
    return {(each.weights.name, index): each.rle["counts"] for index, each in enumerate(results)}


def weights(bench: Bench) -> None:
    """Replace the weights, one replica after another."""
    assert bench.redis
    expected = masks(bench.urls[BY_IMAGE])
    bench.fleet.repository = make_repository(bench.fleet.folder / "other", BUILTIN)
    write_other_weights(bench.fleet.repository)
    with bench.redis.client() as client, bench.load() as load:
        with load.event("new weights"):
            bench.fleet.restart_all()
        counted = Counter(
            key.split(b":")[1] for key in client.scan_iter(f"mobile-sam:*:{64 * '?'}")
        )
    expected |= masks(bench.urls[BY_IMAGE])
    clicks = [call for call in clicks_of(load.calls) if not call.lost]
    mixed = sum(call.mask != expected[call.weights, call.point] for call in clicks)
    in_redis = " and ".join(map(str, counted.values()))
    measured = (
        f"{mixed} of {len(clicks)} mix, {in_redis} embeddings in Redis, {failures(load.calls)}"
        " failed"
    )
    goal = "no answer mixes weights, the embeddings of both in Redis"
    bench.add("new weights", goal, measured, not mixed and len(counted) == 2)


ENCODES = "encodes"
"""Row that is measured with and without Redis."""
ROWS: dict[str, tuple[Callable[[Bench], None], bool]] = {
    "join": (join, False),
    "restart": (restart, True),
    "kill": (lambda bench: fault(bench, "kill -9 of a replica", bench.fleet.killed(0)), True),
    "hang": (lambda bench: fault(bench, "a replica hangs", bench.fleet.slowed(0, 0)), True),
    "slow": (
        lambda bench: fault(bench, "a replica is 5 x slower", bench.fleet.slowed(0, 0.2)),
        True,
    ),
    "redis": (redis_faults, True),
    "flood": (flood, True),
    "weights": (weights, True),
}
"""Functions that measure the other rows, and whether with Redis."""


def measure(plan: dict[str, Any], folder: Path, rows: Collection[str]) -> Bench:
    """Measure rows on replicas without and with Redis on this machine."""
    found = Bench(plan, {}, Fleet(folder, folder, {}))
    for shared in (False, True):
        works = [
            work
            for name, (work, needs_redis) in ROWS.items()
            if name in rows and needs_redis == shared
        ]
        if not works and ENCODES not in rows:
            continue
        with ExitStack() as stack:
            redis = stack.enter_context(redis_server(folder)) if shared else None
            limit = f"{plan['requests_per_second']}/second; {plan['requests_per_minute']}/minute"
            settings = (
                {"MOBILE_SAM_REDIS_URL": redis.url, "MOBILE_SAM_RATE_LIMIT": limit} if redis else {}
            )
            fleet = stack.enter_context(
                running(folder / f"{shared}", prepare(BUILTIN), plan["replicas"], **settings)
            )
            urls = {routing: proxy.url for routing, proxy in fleet.proxies.items()}
            bench = Bench(plan, urls, fleet, redis, found.loads, found.rows)
            encodes(bench, urls if ENCODES in rows else [BY_IMAGE])
            for work in works:
                work(bench)
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", nargs="+", choices=[ENCODES, *ROWS], default=[ENCODES, *ROWS], help="some rows"
    )
    parser.add_argument(
        "--target", help="URL of replicas elsewhere: encodes, latencies and failures are measured"
    )
    arguments, plan = (
        parser.parse_args(),
        yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()),
    )
    if arguments.target:
        encodes(Bench(plan, {BY_IMAGE: arguments.target}, Fleet(ROOT, ROOT, {})), [BY_IMAGE])
        print(f"not measured, because they need replicas on this machine: {', '.join(ROWS)}")
        return
    print(describe_machine(versions=False), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = measure(plan, Path(folder), arguments.rows)
    print(f"\n{table(('', 'goal', 'measured', ''), bench.rows)}")


if __name__ == "__main__":
    main()
