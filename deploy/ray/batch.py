"""A whole batch: what is left to do is found out, cut into parts, and done by workers on Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, Dataset

from deploy.ray import todo
from deploy.ray.files import find_images, open_store
from deploy.ray.results import Results
from deploy.ray.todo import BatchError, Image
from deploy.ray.worker import Hasher, Service, Worker
from mobile_sam_client import Client

CPUS_OF_A_WORKER = 0.5
"""A worker waits most of its time; the service has the work."""
MOST_BLOCKS = 20_000
"""Of the tables that Ray hands out; one task of an actor takes one."""
IMAGE = pa.struct([("path", pa.string()), ("size", pa.int64()), ("mtime_ns", pa.int64()), ("asked", pa.string())])
TASKS = pa.schema([("part", pa.string()), ("images", pa.list_(IMAGE))])

Report = Callable[[int, int], None]
"""Is told of images done, and of all that are to be done."""


@dataclass(frozen=True)
class Wanted:
    """What a batch is to do."""

    images: str
    """A folder, an image, a pattern or a list, as `deploy.ray.files.find_images` takes them."""
    out: str
    """The folder of results."""
    url: str
    """Of the service, as the workers reach it."""
    workers: int
    in_flight: int
    """Images that each worker asks about at once."""
    part_size: int
    """Images of one file of results."""
    everything: dict[str, Any]
    """Parameters, for images without prompts."""


@dataclass(frozen=True)
class Done:
    """What came of it."""

    images: int
    before: int
    """Done by earlier runs."""
    failed: int


def run(wanted: Wanted, report: Report) -> Done:
    """Do a batch.

    Raises:
        BatchError: it cannot be begun or finished; what is done is kept.
        MobileSamError: the service cannot be asked for its weights.
    """
    service = _service(wanted.url)
    place, out = open_store(wanted.out)
    results = Results(place, out.rstrip("/"))
    store, images = find_images(wanted.images, results.folder, wanted.everything)
    known, beyond = results.known()
    results.drop(beyond)
    plan = todo.make_plan(images, known, service.weights)
    if plan.todo or plan.unsure:
        ray.init(ignore_reinit_error=True, logging_level="warning")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
    before = plan.done + _settle(plan, _map(_singly(plan.unsure), Hasher, [store], wanted.workers), known)
    results.drop(todo.outdated(plan.todo, known))
    tasks = list(todo.parts(plan.todo, wanted.part_size, service.weights))
    count = 0
    report(count, len(plan.todo))
    for answer in _map(_as_tasks(tasks), Worker, [store, results, service, wanted.in_flight], wanted.workers):
        if answer["ended"] is not None:
            raise BatchError(answer["ended"])
        count += answer["images"]
        report(count, len(plan.todo))
    known.clear()  # for millions of images, two of them take much memory
    known, _ = results.known()
    results.write_failures(known)
    if lost := [image.path for image in images if image.path not in known]:
        raise BatchError(f"{len(lost)} images have no row, {lost[0]} among them: run the same command again")
    return Done(len(images), before, sum(known[image.path].error is not None for image in images))


def _service(url: str) -> Service:
    with Client(url) as client:
        info = client.info()
    if info.weights is None:
        raise BatchError(f"{url}: expected a service that names its weights, got one that does not know them")
    return Service(url, info.weights.sha256, info.max_objects)


def _settle(plan: todo.Plan, answers: Iterable[dict[str, Any]], known: dict[str, todo.Known]) -> int:
    """Put images whose content has changed among those to do; how many have not."""
    now = {answer["path"]: answer["sha256"] for answer in answers}
    changed = [image for image in plan.unsure if now[image.path] is None or now[image.path] != known[image.path].sha256]
    plan.todo = sorted(plan.todo + changed)
    return len(plan.unsure) - len(changed)


def _singly(images: Sequence[Image]) -> pa.Table:
    return pa.table({"path": pa.array([image.path for image in images], pa.string())})


def _as_tasks(parts: Sequence[tuple[str, Sequence[Image]]]) -> pa.Table:
    rows = [{"part": name, "images": [image._asdict() for image in images]} for name, images in parts]
    return pa.Table.from_pylist(rows, TASKS)


def _map(tasks: pa.Table, actor: type, arguments: list[Any], workers: int) -> Iterable[dict[str, Any]]:
    """The answers of actors to the rows of a table, as they come.

    An actor that dies is started again, on another machine where its own is gone, and its row is done again.
    """
    if not tasks.num_rows:
        return []
    blocks = min(tasks.num_rows, MOST_BLOCKS)
    dataset: Dataset = ray.data.from_arrow(tasks, override_num_blocks=blocks).map(
        actor,
        fn_constructor_args=arguments,
        compute=ActorPoolStrategy(size=min(workers, blocks), max_tasks_in_flight_per_actor=2),
        num_cpus=CPUS_OF_A_WORKER,
    )
    answers: Iterable[dict[str, Any]] = dataset.iter_rows()
    return answers
