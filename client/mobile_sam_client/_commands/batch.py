"""`mobile-sam batch`: segment all images of a folder."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mobile_sam_client import AsyncClient, MobileSamError
from mobile_sam_client._commands import options
from mobile_sam_client._commands.coco import write_coco
from mobile_sam_client._commands.coco_ids import CocoIds
from mobile_sam_client._commands.connection import make_client, service_url
from mobile_sam_client._commands.failures import EXIT_INTERRUPTED, CommandError, describe_with_file
from mobile_sam_client._commands.files import check_writable, write_json
from mobile_sam_client._commands.folder import list_images
from mobile_sam_client._commands.output import print_error, print_line, print_note, print_weights, progress
from mobile_sam_client._commands.prompt_file import read_prompts
from mobile_sam_client._commands.records import Records
from mobile_sam_client._commands.work import BatchFolders, BatchRunner, BatchState
from mobile_sam_client._settings import MAX_CONNECTIONS

MAX_LISTED_FAILURES = 20
"""Failures printed; failures.json lists all of them."""
EXAMPLES = options.examples(
    "mobile-sam batch photos --out found",
    "mobile-sam batch photos --out found --points-per-side 16 --no-overlays",
    "mobile-sam batch photos --out found --prompts prompts.json",
    "where prompts.json lists the objects of each image, for example",
    '{"cats/one.jpg": {"box": \\[40, 30, 560, 410]},\n "two.jpg": \\[{"pos_coords": \\[\\[320, 240]]}]}',
)


def batch(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of PNG, JPEG and WebP files, searched recursively.")
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the results.", show_default=False)],
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Segment these objects instead of everything: JSON that maps image names to an object or a list of "
            "objects, each with some of pos_coords, labels, neg_coords, box. Other images are skipped.",
            show_default=False,
        ),
    ] = None,
    points_per_side: options.PointsPerSide = None,
    no_overlays: Annotated[bool, typer.Option("--no-overlays", help="Do not draw pictures.")] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=MAX_CONNECTIONS, metavar="N", help="Number of concurrent requests.")
    ] = 4,
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
) -> None:
    """Segment all images of a folder: everything in them, or the objects of a prompt file.

    An interrupted run can be resumed with the same command. Finished images are skipped
    unless the image, the parameters or the service's weights have changed.
    Images that fail do not stop the run.

    Files in the result folder:
    annotations.json  COCO annotations of all images
    ids.json          their ids, which stay the same when images are added
    failures.json     failed images, with reasons
    overlays          each image with its objects coloured, as JPEG
    records           results per image, used to resume
    """
    if prompts and points_per_side is not None:
        raise typer.BadParameter("cannot be combined with --prompts", param_hint="--points-per-side")
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("must not be the folder of the images", param_hint="--out")
    check_writable(out / "annotations.json")
    ids = CocoIds.read(out / "ids.json")
    jobs = _jobs(folder, out, prompts, points_per_side)
    folders = BatchFolders(folder, Records(out / "records"), out / "overlays", not no_overlays)
    state = BatchState(len(jobs))
    stop_reason: str | None = None
    with service_url(url, local) as address:
        try:
            asyncio.run(_run(address, folders, state, jobs, concurrency))
        except (MobileSamError, CommandError, KeyboardInterrupt) as error:
            if not (state.processed or state.skipped or state.failures):  # nothing to write
                raise
            stop_reason = "" if isinstance(error, KeyboardInterrupt) else describe_with_file(error)
    _write_results(out, folders, state, ids)
    if stop_reason is not None:
        done = f"{len(state.done)} of {state.total} images are done, run the same command to resume"
        print_error(f"{stop_reason or 'interrupted'}; {done}")
        raise typer.Exit(1 if stop_reason else EXIT_INTERRUPTED)
    if state.failures:
        raise typer.Exit(1)


def _jobs(folder: Path, out: Path, prompts: Path | None, points_per_side: int | None) -> dict[str, dict[str, Any]]:
    """Return the request of each image, by its name.

    Raises:
        CommandError: there are no images, or the prompt file is invalid.
        OSError: the folder or the prompt file cannot be read.
    """
    names = list_images(folder, out)
    if prompts is not None:
        return {name: {"prompts": objects} for name, objects in read_prompts(prompts).items()}
    if not names:
        raise CommandError(f"{folder}: no PNG, JPEG or WebP files found")
    return {name: {"everything": options.grid_fields(points_per_side)} for name in names}


async def _run(
    url: str, folders: BatchFolders, state: BatchState, jobs: dict[str, dict[str, Any]], concurrency: int
) -> None:
    async with make_client(AsyncClient, url) as client:
        info = await client.info()
        state.weights = info.weights
        runner = BatchRunner(client, info, folders, state)
        with progress("Images") as bar:
            bar.update(bar.task_ids[0], total=state.total)
            await runner.run(jobs, concurrency, lambda: bar.advance(bar.task_ids[0]))


def _write_results(out: Path, folders: BatchFolders, state: BatchState, ids: CocoIds) -> None:
    """Write the files about all images and print a summary."""
    images = (image for name in state.done if (image := folders.records.read(name)) is not None)
    count = write_coco(out / "annotations.json", images, state.weights, ids)
    ids.write(out / "ids.json")
    failures = [{"file": name, "reason": reason} for name, reason in sorted(state.failures.items())]
    write_json(out / "failures.json", failures)
    table = Table(show_header=False, box=None)
    for label, number in [
        ("images", state.total),
        ("processed", len(state.processed)),
        ("skipped", len(state.skipped)),
        ("failed", len(failures)),
        ("objects", count),
    ]:
        table.add_row(label, str(number))
    Console().print(table)
    written = ["annotations.json", "ids.json", "failures.json", "records", *(["overlays"] if folders.draw else [])]
    print_line(f"wrote {out}: {', '.join(written)}")
    if state.weights:
        print_weights(state.weights)
    for failure in failures[:MAX_LISTED_FAILURES]:
        print_note(f"failed: {failure['file']}: {failure['reason']}")
    if len(failures) > MAX_LISTED_FAILURES:
        print_note(f"failed: {len(failures) - MAX_LISTED_FAILURES} more, see {out / 'failures.json'}")
