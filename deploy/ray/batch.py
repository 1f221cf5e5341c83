"""The command: plans a batch and runs it with workers on Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any
from uuid import uuid4

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import typer
from ray.util import ActorPool

from deploy.ray.files import find_dataset, find_images, open_store
from deploy.ray.plan import Image, make_plan
from deploy.ray.results import Results
from deploy.ray.worker import Worker
from mobile_sam_client import AsyncClient, Client
from mobile_sam_client._base import MAX_CONNECTIONS, URL
from mobile_sam_client._commands import output
from mobile_sam_client._commands.masks import Annotations, Format
from mobile_sam_client._commands.options import GENERATOR_OPTIONS, option
from mobile_sam_client._commands.output import CommandError

MAX_RETRIES = 20
"""Retries while the service is busy or unreachable: about five minutes, and as long again to find out whether the
service or the image is at fault. A service can restart in that time."""
IMAGES_HELP = (
    "Folder, pattern ('photos/**/*.jpg'), .txt file with one path per line, or Parquet file with a column path and "
    "optionally prompts; a local path or a URI (s3://bucket/photos). With --format the folder of a detection data set."
)


def run(
    images: Annotated[str, typer.Argument(help=IMAGES_HELP)],
    *,
    out: Annotated[str, option("Folder for the results, a path or a URI.", "FOLDER")],
    form: Annotated[
        Format | None, option("Format of a detection data set, as of mobile-sam masks.", None, "--format")
    ] = None,
    annotations: Annotations = None,
    url: Annotated[
        str, typer.Option(metavar="URL", help="URL of the service, for the workers and this command.")
    ] = URL,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Number of actors.")] = 2,
    in_flight: Annotated[
        int, typer.Option(min=1, max=MAX_CONNECTIONS, metavar="N", help="Concurrent requests per worker.")
    ] = 8,
    part_size: Annotated[int, typer.Option(min=1, metavar="N", help="Images per Parquet file.")] = 128,
    points_per_side: Annotated[int | None, GENERATOR_OPTIONS["points_per_side"]] = None,
) -> None:
    """Segment many images with workers on Ray and write Parquet.

    An interrupted run can be resumed with the same command. Finished images
    are skipped unless the image, the parameters or the service's weights have
    changed. Images that fail do not stop the run.

    Exit status: 0 success, 1 failure.
    """
    if (annotations is not None and form is None) or (points_per_side is not None and form is not None):
        raise CommandError("--annotations needs --format, and --points-per-side cannot be combined with it")
    started = time.monotonic()
    with Client(url) as client:
        weights = client.info().weights
    if weights is None:
        raise CommandError(f"{url}: the service does not report its weights")
    results, left_out = Results(*open_store(out)), list[dict[str, Any]]()
    if form is None:
        grid = {} if points_per_side is None else {"points_per_side": points_per_side}
        store, listed = find_images(images, results.folder, grid)
    else:
        store, listed, left_out = find_dataset(images, results.folder, form, annotations)
    todo, outdated = make_plan(listed, results.rows(), weights.sha256, store.sha256)
    results.remove_rows(outdated)
    worker = (partial(AsyncClient, url, retries=MAX_RETRIES), weights, in_flight, store.read, results)
    resume = "finished images are kept, run the same command to resume"
    try:
        with output.progress("Images", len(todo)) as update:
            starts = range(0, len(todo), part_size)
            parts = {f"part-{uuid4().hex}.parquet": todo[start : start + part_size] for start in starts}
            for count, error in _process(parts, worker, workers):
                if error:
                    raise CommandError(f"{error}; {resume}")
                update(advance=count)
    except KeyboardInterrupt:
        output.print_error(f"interrupted; {resume}")
        raise
    failed = len(listed.keys() & results.write_failures(left_out))
    counts = f"{len(todo)} processed, {len(listed) - len(todo)} skipped, {failed} failed"
    print(f"{len(listed)} images: {counts}; {time.monotonic() - started:.1f} s")
    print(f"wrote {out}: parts, failures.json")
    if left_out:
        print(f"{len(left_out)} entries of the data set were left out or changed, see failures.json")
    if failed or left_out:
        raise typer.Exit(1)


def _process(parts: Mapping[str, list[Image]], worker: tuple[object, ...], workers: int) -> Iterator[tuple[int, str]]:
    """Yield the results of `Worker.process` for each part, as they arrive.

    Ray restarts a worker that dies, on another machine if necessary, and repeats its part.
    """
    if parts:
        ray.init(ignore_reinit_error=True, logging_level="warning")
        # Workers mostly wait for the service, so that they need no processor of their own.
        actor = ray.remote(num_cpus=0, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=-1)(Worker)
        pool = ActorPool([actor.remote(*worker) for _ in range(min(workers, len(parts)))])
        yield from pool.map_unordered(lambda one, part: one.process.remote(*part), parts.items())
