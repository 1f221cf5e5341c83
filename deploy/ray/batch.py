"""The command: plans a batch and runs it with workers on Ray."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any
from uuid import uuid4

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import typer
from ray.util import ActorPool

from deploy.ray.errors import BatchError
from deploy.ray.files import find_dataset, find_images, open_store
from deploy.ray.plan import Image, make_plan
from deploy.ray.progress import progress_bar
from deploy.ray.results import Results
from deploy.ray.worker import Worker
from mobile_sam_client import DEFAULT_URL, MAX_CONNECTIONS, AsyncClient, Client, Weights
from mobile_sam_client.datasets import DatasetFormat

MAX_RETRIES = 20
"""Retries while the service is busy or unreachable: about five minutes, and as long again to find
out whether the service or the image is at fault. A service can restart in that time."""
MAX_REPEATS = 5
"""Number of times that a part is repeated because its worker has died."""


def run(
    images: Annotated[
        str,
        typer.Argument(
            help="Folder, pattern ('photos/**/*.jpg'), .txt file with one path per line, or "
            "Parquet file with a column path and optionally prompts; a local path or a URI "
            "(s3://bucket/photos). With --format the folder of a detection data set."
        ),
    ],
    *,
    out: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Folder for the results, a path or a URI."),
    ],
    form: Annotated[
        DatasetFormat | None,
        typer.Option("--format", help="Format of a detection data set, as of mobile-sam masks."),
    ] = None,
    annotations: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="JSON, CSV or YAML file of the data set, if it has several: its path in it.",
        ),
    ] = None,
    url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="URL of the service, for the workers and this command.",
        ),
    ] = DEFAULT_URL,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Number of actors.")] = 2,
    in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_CONNECTIONS,
            metavar="N",
            help="Concurrent requests per worker.",
        ),
    ] = 8,
    part_size: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Images per Parquet file."),
    ] = 128,
    points_per_side: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            metavar="N",
            help="Prompt with a grid of N x N points, by default 32: "
            "fewer are faster, more find smaller objects.",
        ),
    ] = None,
) -> None:
    """Segment many images with workers on Ray and write Parquet.

    An interrupted run can be resumed with the same command. Finished images
    are skipped unless the image, the parameters or the service's weights have
    changed. Images that fail do not stop the run.

    Exit status: 0 success, 1 failure.
    """
    has_wrong_option = points_per_side is not None if form else annotations is not None
    if has_wrong_option:
        needs = "--annotations needs --format"
        raise BatchError(f"{needs}, and --points-per-side cannot be combined with it")
    started = time.monotonic()
    weights = _service_weights(url)
    results = Results(*open_store(out))
    left_out: list[dict[str, Any]] = []
    if form is None:
        everything = {} if points_per_side is None else {"points_per_side": points_per_side}
        store, listed = find_images(images, results.folder, everything)
    else:
        store, listed, left_out = find_dataset(images, results.folder, form, annotations)
    todo, outdated = make_plan(listed, results.rows(), weights.sha256, store.sha256)
    results.remove_rows(outdated)

    connect = partial(AsyncClient, url, retries=MAX_RETRIES)
    worker_arguments = (connect, weights, in_flight, store.read, results)
    resume = "finished images are kept, run the same command to resume"
    try:
        with progress_bar("Images", len(todo)) as update:
            for count, error in _process(_parts(todo, part_size), worker_arguments, workers):
                if error:
                    raise BatchError(f"{error}; {resume}")
                update(advance=count)
    except KeyboardInterrupt:
        print(f"error: interrupted; {resume}", file=sys.stderr)
        raise
    failed = len(listed.keys() & results.write_failures(left_out))
    counts = f"{len(todo)} processed, {len(listed) - len(todo)} skipped, {failed} failed"
    print(f"{len(listed)} images: {counts}; {time.monotonic() - started:.1f} s")
    print(f"wrote {out}: parts, failures.json")
    if left_out:
        hint = "see failures.json"
        print(f"{len(left_out)} entries of the data set were left out or changed, {hint}")
    if failed or left_out:
        raise typer.Exit(1)


def _service_weights(url: str) -> Weights:
    with Client(url) as client:
        weights = client.info().weights
    if weights is None:
        raise BatchError(f"{url}: the service does not report its weights")
    return weights


def _parts(images: list[Image], part_size: int) -> dict[str, list[Image]]:
    """Return the images of each part by the name of its file."""
    parts = {}
    for start in range(0, len(images), part_size):
        parts[f"part-{uuid4().hex}.parquet"] = images[start : start + part_size]
    return parts


def _process(
    parts: Mapping[str, list[Image]],
    worker_arguments: tuple[object, ...],
    workers: int,
) -> Iterator[tuple[int, str]]:
    """Yield the results of `Worker.process` for each part, as they arrive.

    Ray restarts a worker that dies, on another machine if necessary, and repeats its part. If
    workers go on to die with one part, the last result is an error.
    """
    if not parts:  # Ray need not start
        return
    ray.init(ignore_reinit_error=True, logging_level="warning")
    remote = ray.remote(
        num_cpus=0,  # workers mostly wait for the service
        scheduling_strategy="SPREAD",
        max_restarts=-1,
        max_task_retries=MAX_REPEATS,
    )
    actor = remote(Worker)
    count = min(workers, len(parts))
    pool = ActorPool([actor.remote(*worker_arguments) for _ in range(count)])
    try:
        yield from pool.map_unordered(
            lambda worker, part: worker.process.remote(*part),
            parts.items(),
        )
    except ray.exceptions.RayActorError:
        remedy = "if its memory was used up, try smaller --in-flight or --part-size"
        yield 0, f"a worker died {MAX_REPEATS + 1} times with the same part; {remedy}"
