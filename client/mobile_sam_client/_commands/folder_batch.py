"""The batch of a folder: its files, its run with a service, and its summary."""

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from mobile_sam_client import MobileSamError, Weights
from mobile_sam_client._commands import connection, files, output
from mobile_sam_client._errors import describe_error
from mobile_sam_client._orientation import read_orientation
from mobile_sam_client.batches import Batch, CannotWrite, LabelledImage

MAX_LISTED_FAILURES = 20
"""Failures printed; failures.json lists all of them."""


class FolderFiles:
    """The images of a folder, and in another one a record and an overlay of each result."""

    def __init__(
        self,
        requests: Mapping[str, Mapping[str, Any]],
        images: Path,
        out: Path,
        *,
        draw: bool,
        max_side: int | None,
    ) -> None:
        """Prepare the files; nothing is read or written yet.

        Args:
            requests: request per image name, as `Batch` takes them.
            images: folder of the images.
            out: folder for the results.
            draw: True to draw overlays.
            max_side: longest side of the images that are sent, or None.
        """
        self.requests = requests
        if max_side:
            # Masks depend on it: with another one, records are outdated.
            self.requests = {
                name: {**request, "max_side": max_side} for name, request in requests.items()
            }
        self.out = out
        self.draw = draw
        self._images = images

    def load(self, name: str, weights: Weights | None) -> tuple[bytes, LabelledImage | None]:
        """Return an image file, and its result of an earlier run if that is up to date."""
        file = files.read_image(self._images / name)
        inputs = self._cache_inputs(name, file, weights)
        result = self._read_record(name, inputs)
        if result and self.draw and not self._overlay_path(name).exists():
            self._write_overlay(file, result)
        return file, result

    def save(self, file: bytes, result: LabelledImage, weights: Weights | None) -> None:
        """Write overlay and record.

        The record comes last, so that an image interrupted between them is redone.
        """
        name = result.file_name
        if self.draw:
            self._write_overlay(file, result)
        else:
            self._overlay_path(name).unlink(missing_ok=True)  # outdated
        inputs = self._cache_inputs(name, file, weights)
        files.write_json(self._record_path(name), {"question": inputs, **result._asdict()})

    def results(self, names: Iterable[str]) -> Iterator[LabelledImage]:
        """Yield the recorded results of images, sorted by name."""
        for name in sorted(names):
            result = self._read_record(name)
            if result:
                yield result

    def _cache_inputs(self, name: str, file: bytes, weights: Weights | None) -> dict[str, Any]:
        """Return what an image's result depends on; a record is reused only if it is unchanged.

        Records of releases that turned and scaled images by other rules have no orientation.
        """
        return {
            "image_sha256": hashlib.sha256(file).hexdigest(),
            "orientation": read_orientation(file),
            "asked": self.requests[name],
            "weights_sha256": weights.sha256 if weights else None,
        }

    def _record_path(self, name: str) -> Path:
        return self.out / "records" / f"{name}.json"

    def _read_record(self, name: str, inputs: dict[str, Any] | None = None) -> LabelledImage | None:
        """Return the recorded result for an image; None without a valid one.

        Args:
            name: name of the image.
            inputs: inputs that the result must come from; None for any.
        """
        with suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(self._record_path(name).read_bytes())
            if inputs is None or record["question"] == inputs:
                return LabelledImage(*(record[field] for field in LabelledImage._fields))
        return None

    def _overlay_path(self, name: str) -> Path:
        # It keeps the image's suffix, so that `a.png` and `a.jpg` do not collide.
        return self.out / "overlays" / f"{name}.jpg"

    def _write_overlay(self, file: bytes, result: LabelledImage) -> None:
        rles = [fields["segmentation"] for fields in result.objects]
        files.write_overlay(self._overlay_path(result.file_name), file, rles)


def run_batch(batch: Batch, url: str | None, max_side: int | None, concurrency: int) -> str | None:
    """Segment all images of a batch, with a progress bar.

    Returns:
        Why the batch has ended early although some images are done: for `report`. It is empty
        after Ctrl-C, and None if the batch has not ended early.
    """
    checked_url = connection.service_url(url)

    async def run() -> None:
        async with connection.async_client(checked_url, max_side) as client:
            with output.progress("Images", len(batch.requests)) as update:
                await batch.run(client, concurrency, lambda: update(advance=1))

    try:
        asyncio.run(run())
    except (MobileSamError, CannotWrite, KeyboardInterrupt) as error:
        if not batch.done and not batch.failures:  # nothing to report
            raise
        if isinstance(error, KeyboardInterrupt):
            return ""
        return describe_error(error, with_file=True)
    return None


def report(
    batch: Batch,
    folder_files: FolderFiles,
    *,
    counts: dict[str, int],
    written: list[str],
    stop_reason: str | None,
    as_json: bool,
    others: Sequence[dict[str, Any]] = (),
) -> None:
    """Write what failed or was changed, and print a summary.

    Args:
        batch: the batch.
        folder_files: its files.
        counts: further counts.
        written: names of the files that were written.
        stop_reason: what `run_batch` has returned.
        as_json: True to print the summary as JSON.
        others: further failures, and changes, in the form of `Dataset.failures`.

    Raises:
        typer.Exit: something failed or was changed, or the batch has ended early.
    """
    out = folder_files.out
    failures: list[dict[str, Any]] = []
    for name, reason in sorted(batch.failures.items()):
        failures.append({"file": name, "reason": reason})
    failures += others
    files.write_json(out / "failures.json", failures)

    all_counts = {**_counts(batch, failures), **counts}
    if as_json:
        weights = asdict(batch.weights) if batch.weights else None
        output.print_json({"out": str(out), **all_counts, "weights": weights})
    else:
        for label, number in all_counts.items():
            output.print_line(f"{label:9}  {number}")
        names = [*written, "failures.json", "records"]
        if folder_files.draw:
            names.append("overlays")
        output.print_line(f"wrote {out}: {', '.join(names)}")
    if batch.weights:
        output.print_weights(batch.weights, name=not as_json)

    for failure in failures[:MAX_LISTED_FAILURES]:
        output.print_note(described(failure))
    if len(failures) > MAX_LISTED_FAILURES:
        more = len(failures) - MAX_LISTED_FAILURES
        output.print_note(f"{more} more failures and changes, see {out / 'failures.json'}")
    if stop_reason is not None:
        done = f"{len(batch.done)} of {len(batch.requests)} images are done"
        hint = "run the same command to resume"
        output.print_error(f"{stop_reason or 'interrupted'}; {done}, {hint}")
        raise typer.Exit(1 if stop_reason else output.EXIT_INTERRUPTED)
    if failures:
        raise typer.Exit(1)


def _counts(batch: Batch, failures: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the numbers of images, and of failures and changes."""
    changed = sum("changed" in failure for failure in failures)
    skipped = sum(batch.done.values())
    counts = {
        "images": len(batch.requests),
        "processed": len(batch.done) - skipped,
        "skipped": skipped,
        "failed": len(failures) - changed,
    }
    if changed:
        counts["changed"] = changed
    return counts


def described(failure: dict[str, Any]) -> str:
    """Return the line about a failure or a change, in the form of `Dataset.failures`."""
    kind = "changed" if "changed" in failure else "failed"
    place = ""
    for name, value in failure.items():
        if name not in {"file", "reason", "changed"}:
            place += f", {name} {value}"
    return f"{kind}: {failure['file']}{place}: {failure['reason']}"
