"""`mobile-sam batch`: segment all images of a folder."""

import asyncio
import errno
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mobile_sam_client import AsyncClient, MobileSamError, Prompt, ServiceUnreachable, Unauthorized, Weights
from mobile_sam_client._client import MAX_CONNECTIONS
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.coco import (
    CocoIds,
    LabelledImage,
    read_record,
    record_question,
    write_coco,
    write_record,
)
from mobile_sam_client._commands.files import check_writable, list_images, read_image, write_json, write_overlay
from mobile_sam_client._commands.options import DEFAULT_URL, Json, Local, Url, examples, generator_options
from mobile_sam_client._commands.output import (
    EXIT_INTERRUPTED,
    CannotWrite,
    CommandError,
    describe,
    describe_with_file,
    print_error,
    print_json,
    print_line,
    print_note,
    print_weights,
)
from mobile_sam_client._commands.prompts import read_prompts
from mobile_sam_client._exports import coco_fields

FATAL_WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Write errors that would occur for every other image too."""
MAX_LISTED_FAILURES = 20
"""Failures printed; failures.json lists all of them."""
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
            asyncio.run(work.run(address, concurrency))
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
    """Return the request of each image, by its name; none is a `CommandError`."""
    names = list_images(folder, out)
    if prompts is not None:
        return {name: {"prompts": objects} for name, objects in read_prompts(prompts).items()}
    if not names:
        raise CommandError(f"{folder}: no PNG, JPEG or WebP files found")
    return {name: {"everything": parameters} for name in names}


class WeightsChanged(CommandError):
    """The service was restarted with other weights."""


@dataclass
class Batch:
    """The images of a batch, and how far their segmentation has come, even after `run` has failed."""

    images: Path
    """Folder of the images."""
    out: Path
    """Folder for the results."""
    draw: bool
    """True to draw overlays."""
    jobs: dict[str, dict[str, Any]]
    """Per image name the request: `everything` with its parameters, or a list of `prompts`."""
    weights: Weights | None = None
    """Weights of the service; None if it does not report them."""
    max_objects: int = 1
    """Maximum number of prompts per request."""
    processed: list[str] = field(default_factory=list)
    """Images segmented in this run."""
    skipped: list[str] = field(default_factory=list)
    """Images with a result of an earlier run."""
    failures: dict[str, str] = field(default_factory=dict)
    """Failed images, with reasons."""

    @property
    def done(self) -> list[str]:
        """Processed and skipped images, sorted."""
        return sorted(self.processed + self.skipped)

    def record(self, name: str) -> Path:
        """Return the file with the result for an image."""
        return self.out / "records" / f"{name}.json"

    async def run(self, url: str, concurrency: int) -> None:
        """Segment all images with one service.

        Raises:
            MobileSamError: the service is unreachable, or rejects the API key.
            WeightsChanged: the results would come from two models.
            CannotWrite: the disk is full or broken.
        """
        async with connection.make_client(AsyncClient, url) as client:
            info = await client.info()
            self.weights, self.max_objects = info.weights, info.max_objects

            async def work(name: str) -> None:
                try:
                    await self._find_or_segment(name, client)
                except (MobileSamError, CommandError, OSError, ValueError) as error:
                    if await _is_fatal(error, client):
                        raise
                    self.failures[name] = describe(error)

            await connection.run_concurrently(self.jobs, work, concurrency)

    async def _find_or_segment(self, name: str, client: AsyncClient) -> None:
        request = self.jobs[name]
        file = await asyncio.to_thread(read_image, self.images / name)
        question = await asyncio.to_thread(record_question, file, request, self.weights)
        known = await asyncio.to_thread(read_record, self.record(name), name, question)
        result = known or await self._segment(name, file, request, client)
        await asyncio.to_thread(self._save, file, question, result, known is not None)
        (self.skipped if known else self.processed).append(name)

    async def _segment(self, name: str, file: bytes, request: dict[str, Any], client: AsyncClient) -> LabelledImage:
        if "everything" in request:
            found = await client.everything(file, **request["everything"])
            self._check_weights(found.weights)
            return LabelledImage(name, found.width, found.height, [coco_fields(record) for record in found])
        prompts = [Prompt(**fields) for fields in request["prompts"]]
        objects: list[dict[str, Any]] = []
        for start in range(0, len(prompts), self.max_objects):
            masks = await client.segment_many(file, prompts[start : start + self.max_objects])
            self._check_weights(masks[-1].weights)
            objects += [{**coco_fields(mask), "prompt": index} for index, mask in enumerate(masks, start)]
        return LabelledImage(name, masks[0].width, masks[0].height, objects)

    def _save(self, file: bytes, question: dict[str, Any], result: LabelledImage, known: bool) -> None:
        """Write overlay and record. The record comes last, so that an image interrupted between them is redone."""
        # The overlay keeps the image's suffix, so that `a.png` and `a.jpg` do not collide.
        overlay = self.out / "overlays" / f"{result.file_name}.jpg"
        if self.draw and not (known and overlay.exists()):
            write_overlay(overlay, file, [fields["segmentation"] for fields in result.objects])
        if not known:
            if not self.draw:
                overlay.unlink(missing_ok=True)  # outdated
            write_record(self.record(result.file_name), question, result)

    def _check_weights(self, weights: Weights) -> None:
        if self.weights is not None and self.weights.sha256 != weights.sha256:
            raise WeightsChanged("the service was restarted with other weights")


async def _is_fatal(error: Exception, client: AsyncClient) -> bool:
    """Return True if the error would occur for every other image too."""
    if isinstance(error, ServiceUnreachable):
        try:
            await client.info()
        except MobileSamError:
            return True
    full_disk = isinstance(error, CannotWrite) and error.errno in FATAL_WRITE_ERRNOS
    return full_disk or isinstance(error, (WeightsChanged, Unauthorized))


def _write_results(work: Batch, ids: CocoIds, *, as_json: bool) -> None:
    """Write the files about all images and print a summary."""
    out, failures = work.out, [{"file": name, "reason": reason} for name, reason in sorted(work.failures.items())]
    images = (image for name in work.done if (image := read_record(work.record(name), name)) is not None)
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
