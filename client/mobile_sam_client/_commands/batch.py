"""`mobile-sam batch`: segment all images of a folder."""

import asyncio
import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mobile_sam_client import (
    AsyncClient,
    EverythingOptions,
    MobileSamError,
    Prompt,
    ServiceUnreachable,
    Unauthorized,
    Weights,
)
from mobile_sam_client._base import MAX_CONNECTIONS
from mobile_sam_client._commands import connection, files, output
from mobile_sam_client._commands.coco import CocoIds, LabelledImage, read_record, record_question, write_coco
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import CannotWrite, CommandError
from mobile_sam_client._commands.prompts import read_prompts
from mobile_sam_client._datasets.shapes import segment_prompts, segment_shapes
from mobile_sam_client._exports import coco_fields

FATAL_WRITE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""Write errors that would occur for every other image too."""
MAX_LISTED_FAILURES = 20
"""Failures printed; failures.json lists all of them."""

Concurrency = Annotated[
    int, typer.Option(min=1, max=MAX_CONNECTIONS, metavar="N", help="Number of concurrent requests.")
]


def batch(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of PNG, JPEG and WebP files, searched recursively.")
    ],
    *,
    out: Annotated[Path, option("Folder for the results.", "FOLDER")],
    prompts: Annotated[
        Path | None,
        option(
            "Segment these objects instead of everything: JSON that maps image names to objects, each with some of "
            'pos_coords, labels, neg_coords, box, such as {"cats/one.jpg": {"box": [40, 30, 560, 410]}}. Other images '
            "are skipped.",
            "FILE",
        ),
    ] = None,
    parameters: EverythingOptions,
    no_overlays: Annotated[bool, typer.Option("--no-overlays", help="Do not draw pictures.")] = False,
    concurrency: Concurrency = 4,
    service: connection.ImageOptions,
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
    asked = {name: value for name, value in parameters.items() if value is not None}
    if prompts and asked:
        raise typer.BadParameter("cannot be combined with the options for everything", param_hint="--prompts")
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("must not be the folder of the images", param_hint="--out")
    files.check_writable(out / "annotations.json")
    ids = CocoIds(out / "ids.json")
    names = files.list_images(folder, out)
    if prompts is not None:
        jobs: dict[str, dict[str, Any]] = {name: {"prompts": each} for name, each in read_prompts(prompts).items()}
    elif names:
        jobs = {name: {"everything": asked} for name in names}
    else:
        raise CommandError(f"{folder}: no PNG, JPEG or WebP files found")
    work = Batch(folder, out, jobs, draw=not no_overlays)
    work.run_with(service, concurrency)
    objects = write_coco(out / "annotations.json", work.results(), work.weights, ids)
    ids.write(out / "ids.json")
    work.report({"objects": objects}, ["annotations.json", "ids.json"], as_json=service.as_json)


class WeightsChanged(CommandError):
    """The service was restarted with other weights."""


@dataclass
class Batch:
    """The images of a batch, and how far their segmentation has come, even after `run` has failed."""

    images: Path
    """Folder of the images."""
    out: Path
    """Folder for the results."""
    jobs: dict[str, dict[str, Any]]
    """Per image name the request: `everything` with its parameters, a list of `prompts`, or `shapes` as for
    `segment_shapes`; and `max_side`, if given, from `run_with` on."""
    draw: bool = False
    """True to draw overlays."""
    weights: Weights | None = None
    """Weights of the service; None if it does not report them."""
    max_objects: int = 1
    """Maximum number of prompts per request."""
    done: dict[str, bool] = field(default_factory=dict)
    """Per segmented image whether its result is that of an earlier run."""
    failures: dict[str, str] = field(default_factory=dict)
    """Failed images, with reasons."""
    stop_reason: str | None = None
    """Why the run has ended early; empty after Ctrl-C."""

    def run_with(self, service: connection.ImageOptions, concurrency: int) -> None:
        """Segment all images with the service of a command. If some are done, an error is left to `report`."""
        if service.max_side:
            self.jobs = {name: {**job, "max_side": service.max_side} for name, job in self.jobs.items()}
        with service.address() as url:
            try:
                asyncio.run(self.run(partial(service.client, AsyncClient, url), concurrency))
            except (MobileSamError, CommandError, KeyboardInterrupt) as error:
                if not (self.done or self.failures):  # nothing to write
                    raise
                self.stop_reason = "" if isinstance(error, KeyboardInterrupt) else output.describe_with_file(error)

    async def run(self, connect: Callable[[], AsyncClient], concurrency: int) -> None:
        """Segment all images with one service.

        Raises:
            MobileSamError: the service is unreachable, or rejects the API key.
            WeightsChanged: the results would come from two models.
            CannotWrite: the disk is full or broken.
        """
        async with connect() as client:
            info = await client.info()
            self.weights, self.max_objects = info.weights, info.max_objects

            async def work(name: str) -> None:
                try:
                    file, question, known = await asyncio.to_thread(self._load, name)
                    result = known or await self._segment(name, file, client)
                    await asyncio.to_thread(self._save, file, question, result, known is not None)
                    self.done[name] = known is not None
                except (MobileSamError, CommandError, OSError, ValueError) as error:
                    if await _is_fatal(error, client):
                        raise
                    self.failures[name] = output.describe(error)

            await connection.run_concurrently(self.jobs, work, concurrency)

    def _record(self, name: str) -> Path:
        return self.out / "records" / f"{name}.json"

    def _load(self, name: str) -> tuple[bytes, dict[str, Any], LabelledImage | None]:
        """Return the image file, the question, and the result of an earlier run if it answers the question."""
        file = files.read_image(self.images / name)
        question = record_question(file, self.jobs[name], self.weights)
        return file, question, read_record(self._record(name), name, question)

    async def _segment(self, name: str, file: bytes, client: AsyncClient) -> LabelledImage:
        request = self.jobs[name]
        if "everything" in request:
            found = await client.everything(file, **request["everything"])
            self._check_weights(found.weights)
            return LabelledImage.from_everything(name, found)
        if "shapes" in request:
            size_wh, masks, objects = await segment_shapes(client, file, request, self.max_objects)
        else:
            prompts = [Prompt(**fields) for fields in request["prompts"]]
            masks = await segment_prompts(client, file, prompts, self.max_objects)
            objects = [{**coco_fields(mask), "prompt": index} for index, mask in enumerate(masks)]
            size_wh = masks[0].width, masks[0].height
        for mask in masks:
            self._check_weights(mask.weights)
        return LabelledImage(name, *size_wh, objects)

    def _save(self, file: bytes, question: dict[str, Any], result: LabelledImage, known: bool) -> None:
        """Write overlay and record. The record comes last, so that an image interrupted between them is redone."""
        # The overlay keeps the image's suffix, so that `a.png` and `a.jpg` do not collide.
        overlay = self.out / "overlays" / f"{result.file_name}.jpg"
        if self.draw and not (known and overlay.exists()):
            files.write_overlay(overlay, file, [fields["segmentation"] for fields in result.objects])
        if not known:
            if not self.draw:
                overlay.unlink(missing_ok=True)  # outdated
            files.write_json(self._record(result.file_name), {"question": question, **asdict(result)})

    def _check_weights(self, weights: Weights) -> None:
        if self.weights is not None and self.weights.sha256 != weights.sha256:
            raise WeightsChanged("the service was restarted with other weights")

    def results(self) -> Iterator[LabelledImage]:
        """Yield the results of all finished images, sorted by name."""
        return (image for name in sorted(self.done) if (image := read_record(self._record(name), name)) is not None)

    def report(self, objects: dict[str, int], written: list[str], lost: Sequence[Any] = (), *, as_json: bool) -> None:
        """Write the failures, with `lost` as further ones, and print a summary; `typer.Exit` if anything failed."""
        failures = [{"file": name, "reason": reason} for name, reason in sorted(self.failures.items())]
        skipped = sum(self.done.values())
        counts = {"images": len(self.jobs), "processed": len(self.done) - skipped, "skipped": skipped}
        counts |= {"failed": len(failures), **objects}
        failures += lost
        files.write_json(self.out / "failures.json", failures)
        if as_json:
            weights = asdict(self.weights) if self.weights else None
            output.print_json({"out": str(self.out), **counts, "weights": weights})
        else:
            table = Table(show_header=False, box=None)
            for label, number in counts.items():
                table.add_row(label, str(number))
            Console().print(table)
            names = [*written, "failures.json", "records", *(["overlays"] if self.draw else [])]
            output.print_line(f"wrote {self.out}: {', '.join(names)}")
        if self.weights:
            output.print_weights(self.weights, name=not as_json)
        for failure in failures[:MAX_LISTED_FAILURES]:
            which = "".join(f", {name} {value}" for name, value in failure.items() if name not in {"file", "reason"})
            output.print_note(f"failed: {failure['file']}{which}: {failure['reason']}")
        if len(failures) > MAX_LISTED_FAILURES:
            output.print_note(f"failed: {len(failures) - MAX_LISTED_FAILURES} more, see {self.out / 'failures.json'}")
        if self.stop_reason is not None:
            done = f"{len(self.done)} of {len(self.jobs)} images are done, run the same command to resume"
            output.print_error(f"{self.stop_reason or 'interrupted'}; {done}")
            raise typer.Exit(1 if self.stop_reason else output.EXIT_INTERRUPTED)
        if failures:
            raise typer.Exit(1)


async def _is_fatal(error: Exception, client: AsyncClient) -> bool:
    """Return True if the error would occur for every other image too."""
    if isinstance(error, ServiceUnreachable):
        try:
            await client.info()
        except MobileSamError:
            return True
    full_disk = isinstance(error, CannotWrite) and error.errno in FATAL_WRITE_ERRNOS
    return full_disk or isinstance(error, (WeightsChanged, Unauthorized))
