"""`mobile-sam batch`: every image of a folder."""

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
from mobile_sam_client._commands.connection import address, client_of
from mobile_sam_client._commands.failures import INTERRUPTED, CommandError, reason
from mobile_sam_client._commands.files import check_place, write_json
from mobile_sam_client._commands.folder import images_below
from mobile_sam_client._commands.output import progress, tell, tell_aside, tell_error, tell_weights
from mobile_sam_client._commands.prompt_file import read_prompts
from mobile_sam_client._commands.records import Records
from mobile_sam_client._commands.work import Places, Tally, Work
from mobile_sam_client._settings import MAX_CONNECTIONS

LISTED = 20
"""Failures that are printed; the file has them all."""
EXAMPLES = options.examples(
    "mobile-sam batch photos --out found",
    "mobile-sam batch photos --out found --points-per-side 16 --no-overlays",
    "mobile-sam batch photos --out found --prompts prompts.json",
    "where prompts.json says what to find on which image, for example",
    '{"cats/one.jpg": {"box": \\[40, 30, 560, 410]},\n "two.jpg": \\[{"pos_coords": \\[\\[320, 240]]}]}',
)


def batch(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="PNG, JPEG and WebP files, in folders below it too.")
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the results go.", show_default=False)],
    prompts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What to find, in place of everything: JSON with, for each image's name, an object or a list of "
            "them, each with some of pos_coords, labels, neg_coords, box. Images not named in it are left out.",
            show_default=False,
        ),
    ] = None,
    points_per_side: options.PointsPerSide = None,
    no_overlays: Annotated[bool, typer.Option("--no-overlays", help="Draw no pictures.")] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=MAX_CONNECTIONS, metavar="N", help="Images asked about at once.")
    ] = 4,
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
) -> None:
    """Find everything, or what a file of prompts says, on every image of a folder.

    Started again it goes on where it ended: what is done is not done again,
    unless the image, what is asked, or the service's weights changed.
    A file that cannot be done never stops the rest.

    Into the folder of results go
    annotations.json  a COCO file of all images
    ids.json          its ids, which stay when images are added
    failures.json     what could not be done, and why
    overlays          each image with its objects in colours, a JPEG file
    records           what is done, a file for each image
    """
    if prompts and points_per_side is not None:
        raise typer.BadParameter("expected --prompts or --points-per-side, got both", param_hint="--points-per-side")
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("expected another folder than that of the images", param_hint="--out")
    check_place(out / "annotations.json")
    ids = CocoIds.read(out / "ids.json")
    jobs = _jobs(folder, out, prompts, points_per_side)
    places, tally = Places(folder, Records(out / "records"), out / "overlays", not no_overlays), Tally(len(jobs))
    stopped: str | None = None
    with address(url, local) as found:
        try:
            asyncio.run(_do(found, places, tally, jobs, concurrency))
        except (MobileSamError, CommandError, KeyboardInterrupt) as error:
            if not (tally.asked or tally.kept or tally.failures):  # there is nothing to write and to go on from
                raise
            stopped = "" if isinstance(error, KeyboardInterrupt) else reason(error)
    _finish(out, places, tally, ids)
    if stopped is not None:
        done = f"{len(tally.done)} of {tally.total} images are done, and the same command goes on from there"
        tell_error(f"{stopped or 'interrupted'}; {done}")
        raise typer.Exit(1 if stopped else INTERRUPTED)
    if tally.failures:
        raise typer.Exit(1)


def _jobs(folder: Path, out: Path, prompts: Path | None, points_per_side: int | None) -> dict[str, dict[str, Any]]:
    """What each image is asked.

    Raises:
        CommandError: there is no image, or the file of prompts is none.
        OSError: the folder or the file cannot be read.
    """
    names = images_below(folder, out)
    if prompts is not None:
        return {name: {"prompts": objects} for name, objects in read_prompts(prompts).items()}
    if not names:
        raise CommandError(f"{folder}: expected PNG, JPEG or WebP files in it, found none")
    return {name: {"everything": options.grid(points_per_side)} for name in names}


async def _do(url: str, places: Places, tally: Tally, jobs: dict[str, dict[str, Any]], concurrency: int) -> None:
    async with client_of(AsyncClient, url) as client:
        info = await client.info()
        tally.weights = info.weights
        work = Work(client, info, places, tally)
        with progress("Images") as bar:
            bar.update(bar.task_ids[0], total=tally.total)
            await work.run(jobs, concurrency, lambda: bar.advance(bar.task_ids[0]))


def _finish(out: Path, places: Places, tally: Tally, ids: CocoIds) -> None:
    """Write the files that are of all images, and say what was done."""
    images = (image for name in tally.done if (image := places.records.read(name)) is not None)
    count = write_coco(out / "annotations.json", images, tally.weights, ids)
    ids.write(out / "ids.json")
    failures = [{"file": name, "reason": why} for name, why in sorted(tally.failures.items())]
    write_json(out / "failures.json", failures)
    table = Table(show_header=False, box=None)
    for words, number in [
        ("images", tally.total),
        ("done now", len(tally.asked)),
        ("done before", len(tally.kept)),
        ("failed", len(failures)),
        ("objects", count),
    ]:
        table.add_row(words, str(number))
    Console().print(table)
    written = ["annotations.json", "ids.json", "failures.json", "records", *(["overlays"] if places.draw else [])]
    tell(f"wrote {out}: {', '.join(written)}")
    if tally.weights:
        tell_weights(tally.weights)
    for failure in failures[:LISTED]:
        tell_aside(f"failed: {failure['file']}: {failure['reason']}")
    if len(failures) > LISTED:
        tell_aside(f"failed: {len(failures) - LISTED} more, see {out / 'failures.json'}")
