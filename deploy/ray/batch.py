"""Planning and execution of a batch with workers on Ray."""

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

CPUS_PER_WORKER = 0.5
"""Workers mostly wait for the service."""
MAX_BLOCKS = 20_000
"""Maximum number of Ray blocks per dataset; an actor processes one at a time."""
IMAGE = pa.struct([("path", pa.string()), ("size", pa.int64()), ("mtime_ns", pa.int64()), ("asked", pa.string())])
TASKS = pa.schema([("part", pa.string()), ("images", pa.list_(IMAGE))])

ProgressCallback = Callable[[int, int], None]
"""Called with the number of images done and the total."""


@dataclass(frozen=True)
class BatchOptions:
    """Options of a batch."""

    images: str
    """Folder, image, pattern or list; see `deploy.ray.files.find_images`."""
    out: str
    """Folder for the results."""
    url: str
    """URL of the service, for the workers and this process."""
    workers: int
    in_flight: int
    """Concurrent requests per worker."""
    part_size: int
    """Images per result file."""
    everything: dict[str, Any]
    """Parameters for images without prompts."""


@dataclass(frozen=True)
class BatchSummary:
    """Numbers of images of a finished batch."""

    images: int
    skipped: int
    """Finished by earlier runs."""
    failed: int


def run(options: BatchOptions, on_progress: ProgressCallback) -> BatchSummary:
    """Run a batch.

    Raises:
        BatchError: the batch cannot be started or finished; finished images are kept.
        MobileSamError: the request for the service's weights failed.
    """
    service = _service(options.url)
    result_store, out = open_store(options.out)
    results = Results(result_store, out.rstrip("/"))
    store, images = find_images(options.images, results.folder, options.everything)
    known, duplicates = results.read_known()
    results.remove_rows(duplicates)
    plan = todo.make_plan(images, known, service.weights)
    if plan.todo or plan.unsure:
        ray.init(ignore_reinit_error=True, logging_level="warning")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
    hashes = _map(_path_table(plan.unsure), Hasher, [store], options.workers)
    skipped = plan.done + _resolve_unsure(plan, hashes, known)
    results.remove_rows(todo.outdated(plan.todo, known))
    tasks = list(todo.parts(plan.todo, options.part_size, service.weights))
    count = 0
    on_progress(count, len(plan.todo))
    for result in _map(_task_table(tasks), Worker, [store, results, service, options.in_flight], options.workers):
        if result["error"] is not None:
            raise BatchError(result["error"])
        count += result["images"]
        on_progress(count, len(plan.todo))
    known.clear()  # saves memory with millions of images
    known, _ = results.read_known()
    results.write_failures(known)
    if missing := [image.path for image in images if image.path not in known]:
        raise BatchError(f"{len(missing)} images have no row, such as {missing[0]}: run the same command again")
    return BatchSummary(len(images), skipped, sum(known[image.path].error is not None for image in images))


def _service(url: str) -> Service:
    with Client(url) as client:
        info = client.info()
    if info.weights is None:
        raise BatchError(f"{url}: the service does not report its weights")
    return Service(url, info.weights.sha256, info.max_objects)


def _resolve_unsure(plan: todo.Plan, hashes: Iterable[dict[str, Any]], known: dict[str, todo.Known]) -> int:
    """Move images with changed content to `plan.todo` and return the number of unchanged ones."""
    current = {row["path"]: row["sha256"] for row in hashes}
    changed = [
        image for image in plan.unsure if current[image.path] is None or current[image.path] != known[image.path].sha256
    ]
    plan.todo = sorted(plan.todo + changed)
    return len(plan.unsure) - len(changed)


def _path_table(images: Sequence[Image]) -> pa.Table:
    return pa.table({"path": pa.array([image.path for image in images], pa.string())})


def _task_table(parts: Sequence[tuple[str, Sequence[Image]]]) -> pa.Table:
    rows = [{"part": name, "images": [image._asdict() for image in images]} for name, images in parts]
    return pa.Table.from_pylist(rows, TASKS)


def _map(tasks: pa.Table, actor: type, arguments: list[Any], workers: int) -> Iterable[dict[str, Any]]:
    """Yield the results of actors for the rows of a table as they arrive.

    Ray restarts an actor that dies, on another machine if necessary, and repeats its row.
    """
    if not tasks.num_rows:
        return []
    blocks = min(tasks.num_rows, MAX_BLOCKS)
    dataset: Dataset = ray.data.from_arrow(tasks, override_num_blocks=blocks).map(
        actor,
        fn_constructor_args=arguments,
        compute=ActorPoolStrategy(size=min(workers, blocks), max_tasks_in_flight_per_actor=2),
        num_cpus=CPUS_PER_WORKER,
    )
    results: Iterable[dict[str, Any]] = dataset.iter_rows()
    return results
