"""`mobile-sam batch`: segment all images of a folder."""

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client import AsyncClient, EverythingOptions, MobileSamError
from mobile_sam_client._base import MAX_CONNECTIONS
from mobile_sam_client._commands import connection, files, output
from mobile_sam_client._commands.options import Clip, option
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.prompts import read_prompts
from mobile_sam_client._commands.run import LabelledImage, Run
from mobile_sam_client._exports import coco_annotation
from mobile_sam_client._orientation import read_orientation

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
    clip: Clip = False,
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
    if clip and not prompts:
        raise typer.BadParameter("is for the objects of --prompts", param_hint="--clip")
    if out.resolve() == folder.resolve():
        raise typer.BadParameter("must not be the folder of the images", param_hint="--out")
    files.check_writable(out / "annotations.json")
    ids = CocoIds(out / "ids.json")
    names = files.list_images(folder, out)
    if prompts is not None:
        options = {"clip": True} if clip else {}
        jobs: dict[str, dict[str, Any]] = {
            name: {"prompts": objects, **options} for name, objects in read_prompts(prompts).items()
        }
    elif names:
        jobs = {name: {"everything": asked} for name in names}
    else:
        raise CommandError(f"{folder}: no PNG, JPEG or WebP files found")
    work = Batch(jobs, images=folder, out=out, draw=not no_overlays)
    work.run_with(service, concurrency)
    objects = files.write_coco(
        out / "annotations.json", files.ONE_CATEGORY, map(ids.entry, work.results()), work.weights
    )
    ids.write()
    work.report({"objects": objects}, ["annotations.json", "ids.json"], as_json=service.as_json)


class CocoIds:
    """Ids by image name, counted from 1. An id is never reused for another image or object."""

    def __init__(self, path: Path) -> None:
        """Continue from the ids in a file written by `write`, if it exists."""
        self._path = path
        try:
            self._known: dict[str, dict[str, Any]] = json.loads(path.read_bytes()) if path.exists() else {}
            ids = self._known.values()
            self._next_image = max((each["image"] for each in ids), default=0) + 1
            self._next_object = max((each["first_object"] + each["objects"] for each in ids), default=1)
        except (ValueError, TypeError, KeyError, AttributeError):
            expected = "expected the ids written by an earlier run; delete the file to assign new ids"
            raise CommandError(f"{path}: malformed, {expected}") from None

    def write(self) -> None:
        files.write_json(self._path, self._known)

    def entry(self, image: LabelledImage) -> files.Entry:
        """Return the entry of an image, with known ids, or new ones for a new image or changed objects."""
        sha256 = hashlib.sha256(json.dumps(image.objects, sort_keys=True).encode()).hexdigest()
        ids = self._known.setdefault(image.file_name, {"image": self._next_image})
        if ids.get("objects_sha256") != sha256:
            ids |= {"first_object": self._next_object, "objects": len(image.objects), "objects_sha256": sha256}
            self._next_image = max(self._next_image, ids["image"] + 1)
            self._next_object += len(image.objects)
        numbered = enumerate(image.objects, ids["first_object"])
        annotations = [coco_annotation(fields, object_id, ids["image"], 1) for object_id, fields in numbered]
        size = {"width": image.width, "height": image.height}
        return {"id": ids["image"], "file_name": image.file_name, **size}, annotations


@dataclass(kw_only=True)
class Batch(Run):
    """A run over a folder, with a record of each result to resume it."""

    images: Path
    """Folder of the images."""
    out: Path
    """Folder for the results."""
    draw: bool = False
    """True to draw overlays."""
    stop_reason: str | None = None
    """Why the run has ended early; empty after Ctrl-C."""

    def run_with(self, service: connection.ImageOptions, concurrency: int) -> None:
        """Segment all images with the service of a command. If some are done, an error is left to `report`."""
        if service.max_side:
            self.jobs = {name: {**job, "max_side": service.max_side} for name, job in self.jobs.items()}
        make_client = partial(service.client, AsyncClient, service.address())
        try:
            asyncio.run(self.segment_all(make_client, concurrency))
        except (MobileSamError, CommandError, KeyboardInterrupt) as error:
            if not (self.done or self.failures):  # nothing to write
                raise
            self.stop_reason = "" if isinstance(error, KeyboardInterrupt) else output.describe_with_file(error)

    def load(self, name: str) -> tuple[bytes, LabelledImage | None]:
        """Read an image file, and its result of an earlier run if image, request and weights are unchanged."""
        file = files.read_image(self.images / name)
        known = self._record(name, self._question(name, file))
        if known and self.draw and not self._overlay(name).exists():
            self._write_overlay(file, known)
        return file, known

    def save(self, file: bytes, result: LabelledImage) -> None:
        """Write overlay and record. The record comes last, so that an image interrupted between them is redone."""
        if self.draw:
            self._write_overlay(file, result)
        else:
            self._overlay(result.file_name).unlink(missing_ok=True)  # outdated
        question = self._question(result.file_name, file)
        files.write_json(self._record_path(result.file_name), {"question": question, **result._asdict()})

    def results(self) -> Iterator[LabelledImage]:
        """Yield the results of all finished images, sorted by name."""
        return filter(None, map(self._record, sorted(self.done)))

    def _question(self, name: str, file: bytes) -> dict[str, Any]:
        """Return what the result for an image depends on; a record is reused only if it is unchanged.

        Records of releases that turned and scaled images by other rules have no orientation.
        """
        return {
            "image_sha256": hashlib.sha256(file).hexdigest(),
            "orientation": read_orientation(file),
            "asked": self.jobs[name],
            "weights_sha256": self.weights.sha256 if self.weights else None,
        }

    def _record_path(self, name: str) -> Path:
        return self.out / "records" / f"{name}.json"

    def _record(self, name: str, question: dict[str, Any] | None = None) -> LabelledImage | None:
        """Return the kept result for an image; None without a valid one, or one for a given question."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(self._record_path(name).read_bytes())
            if question in (None, record["question"]):
                return LabelledImage(*(record[field] for field in LabelledImage._fields))
        return None

    def _overlay(self, name: str) -> Path:
        return self.out / "overlays" / f"{name}.jpg"  # keeps the image's suffix: `a.png` and `a.jpg` do not collide

    def _write_overlay(self, file: bytes, result: LabelledImage) -> None:
        files.write_overlay(
            self._overlay(result.file_name), file, [fields["segmentation"] for fields in result.objects]
        )

    def report(self, objects: dict[str, int], written: list[str], lost: Sequence[Any] = (), *, as_json: bool) -> None:
        """Write what failed or was changed, and print a summary; `typer.Exit` if there is anything of it.

        Args:
            objects: further counts.
            written: names of the files.
            lost: further failures, and changes, in the form of `Dataset.failures`.
            as_json: True to print the summary as JSON.
        """
        failures: list[dict[str, Any]] = [
            {"file": name, "reason": reason} for name, reason in sorted(self.failures.items())
        ]
        failures += lost
        changed = sum("changed" in failure for failure in failures)
        skipped = sum(self.done.values())
        counts = {"images": len(self.jobs), "processed": len(self.done) - skipped, "skipped": skipped}
        counts |= {"failed": len(failures) - changed}
        if changed:
            counts["changed"] = changed
        counts |= objects
        files.write_json(self.out / "failures.json", failures)
        if as_json:
            weights = asdict(self.weights) if self.weights else None
            output.print_json({"out": str(self.out), **counts, "weights": weights})
        else:
            for label, number in counts.items():
                output.print_line(f"{label:9}  {number}")
            names = [*written, "failures.json", "records", *(["overlays"] if self.draw else [])]
            output.print_line(f"wrote {self.out}: {', '.join(names)}")
        if self.weights:
            output.print_weights(self.weights, name=not as_json)
        for failure in failures[:MAX_LISTED_FAILURES]:
            output.print_note(_described(failure))
        if len(failures) > MAX_LISTED_FAILURES:
            more = len(failures) - MAX_LISTED_FAILURES
            output.print_note(f"{more} more failures and changes, see {self.out / 'failures.json'}")
        if self.stop_reason is not None:
            done = f"{len(self.done)} of {len(self.jobs)} images are done, run the same command to resume"
            output.print_error(f"{self.stop_reason or 'interrupted'}; {done}")
            raise typer.Exit(1 if self.stop_reason else output.EXIT_INTERRUPTED)
        if failures:
            raise typer.Exit(1)


def _described(failure: dict[str, Any]) -> str:
    """Return the line about a failure or a change, in the form of `Dataset.failures`."""
    places = {name: value for name, value in failure.items() if name not in {"file", "reason", "changed"}}
    which = "".join(f", {name} {value}" for name, value in places.items())
    kind = "changed" if "changed" in failure else "failed"
    return f"{kind}: {failure['file']}{which}: {failure['reason']}"
