"""`mobile-sam batch`: segment all images of a folder."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, fields
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mobile_sam_client import AsyncClient, MobileSamError, Prompt
from mobile_sam_client._client import MAX_CONNECTIONS
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.coco import CocoIds, write_coco
from mobile_sam_client._commands.files import check_writable, list_images, write_json
from mobile_sam_client._commands.options import DEFAULT_URL, Json, Local, Url, examples, generator_options
from mobile_sam_client._commands.output import (
    EXIT_INTERRUPTED,
    CommandError,
    describe_with_file,
    print_error,
    print_json,
    print_line,
    print_note,
    print_weights,
    progress,
)
from mobile_sam_client._commands.work import Batch

MAX_LISTED_FAILURES = 20
"""Failures printed; failures.json lists all of them."""
PROMPT_FIELDS = [field.name for field in fields(Prompt) if field.name != "mask_input"]
BATCH_EXAMPLES = examples(
    "mobile-sam batch photos --points-per-side 8 --out found",
    "mobile-sam batch photos --prompts prompts.json --out found",
)


@generator_options
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
            help="Segment these objects instead of everything: JSON that maps image names to objects, each with some "
            "of pos_coords, labels, neg_coords, box, such as "
            '{"cats/one.jpg": {"box": [40, 30, 560, 410]}}. Other images are skipped.',
            show_default=False,
        ),
    ] = None,
    parameters: dict[str, Any],
    no_overlays: Annotated[bool, typer.Option("--no-overlays", help="Do not draw pictures.")] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=MAX_CONNECTIONS, metavar="N", help="Number of concurrent requests.")
    ] = 4,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Segment all images of a folder: everything in them, or the objects of a prompt file.

    The same command resumes an interrupted run. Finished images are skipped
    unless image, parameters or weights have changed. Images that fail do not stop the run.

    Files in the result folder:
    annotations.json  COCO annotations of all images
    ids.json          their ids, which stay the same when images are added
    failures.json     failed images, with reasons
    overlays          each image with its objects coloured, as JPEG
    records           results per image, used to resume
    """
    if prompts and parameters:
        raise typer.BadParameter("cannot be combined with the options for everything", param_hint="--prompts")
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("must not be the folder of the images", param_hint="--out")
    check_writable(out / "annotations.json")
    ids = CocoIds.read(out / "ids.json")
    work = Batch(folder, out, not no_overlays, _jobs(folder, out, prompts, parameters))
    stop_reason: str | None = None
    with connection.service_url(url, local) as address:
        try:
            asyncio.run(_run(address, work, concurrency))
        except (MobileSamError, CommandError, KeyboardInterrupt) as error:
            if not (work.done or work.failures):  # nothing to write
                raise
            stop_reason = "" if isinstance(error, KeyboardInterrupt) else describe_with_file(error)
    _write_results(work, ids, as_json=as_json)
    if stop_reason is not None:
        done = f"{len(work.done)} of {len(work.jobs)} images are done, run the same command to resume"
        print_error(f"{stop_reason or 'interrupted'}; {done}")
        raise typer.Exit(1 if stop_reason else EXIT_INTERRUPTED)
    if work.failures:
        raise typer.Exit(1)


def _jobs(folder: Path, out: Path, prompts: Path | None, parameters: dict[str, Any]) -> dict[str, dict[str, Any]]:
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
    return {name: {"everything": parameters} for name in names}


async def _run(url: str, work: Batch, concurrency: int) -> None:
    async with connection.make_client(AsyncClient, url) as client:
        info = await client.info()
        with progress("Images") as bar:
            bar.update(bar.task_ids[0], total=len(work.jobs))
            await work.run(client, info, concurrency, lambda: bar.advance(bar.task_ids[0]))


def _write_results(work: Batch, ids: CocoIds, *, as_json: bool) -> None:
    """Write the files about all images and print a summary."""
    out, failures = work.out, [{"file": name, "reason": reason} for name, reason in sorted(work.failures.items())]
    images = (image for name in work.done if (image := work.records.read(name)) is not None)
    count = write_coco(out / "annotations.json", images, work.weights, ids)
    ids.write(out / "ids.json")
    write_json(out / "failures.json", failures)
    counts = {
        "images": len(work.jobs),
        "processed": len(work.processed),
        "skipped": len(work.skipped),
        "failed": len(failures),
        "objects": count,
    }
    if as_json:
        print_json({"out": str(out), **counts, "weights": asdict(work.weights) if work.weights else None})
    else:
        table = Table(show_header=False, box=None)
        for label, number in counts.items():
            table.add_row(label, str(number))
        Console().print(table)
        written = ["annotations.json", "ids.json", "failures.json", "records", *(["overlays"] if work.draw else [])]
        print_line(f"wrote {out}: {', '.join(written)}")
    if work.weights:
        print_weights(work.weights, name=not as_json)
    for failure in failures[:MAX_LISTED_FAILURES]:
        print_note(f"failed: {failure['file']}: {failure['reason']}")
    if len(failures) > MAX_LISTED_FAILURES:
        print_note(f"failed: {len(failures) - MAX_LISTED_FAILURES} more, see {out / 'failures.json'}")


def read_prompts(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read a JSON file with the objects of each image. A single object may stand without a list.

    Returns:
        The objects per image name, sorted by name. The service checks their values.

    Raises:
        CommandError: the file is malformed; the message says where.
        OSError: the file cannot be read.
    """
    try:
        document = json.loads(path.read_bytes(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        expected = '{"photo.jpg": [{"pos_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...], ...}'
        raise CommandError(f"{path}: expected {expected}, got {_short(document)}")
    return {name: _objects(f"{path}: {name!r}", name, document[name]) for name in sorted(document)}


def _objects(where: str, name: str, value: Any) -> list[dict[str, Any]]:
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or not path.name:
        raise CommandError(f"{where}: expected a path relative to the image folder, such as 'cats/one.jpg'")
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects:
        raise CommandError(f"{where}: expected a list of objects, got {_short(value)}")
    for index, given in enumerate(objects):
        if not isinstance(given, dict) or not given or not set(given) <= set(PROMPT_FIELDS):
            expected = f"expected some of {', '.join(PROMPT_FIELDS)}"
            raise CommandError(f"{where}: object {index}: {expected}, got {_short(given)}")
    return objects


def _short(value: Any) -> str:
    """Return the beginning of an invalid value for a message."""
    return json.dumps(value)[:80]


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
