"""Segment many images with workers on Ray and write Parquet.

python -m deploy.ray photos --out found
python -m deploy.ray 's3://bucket/photos/**/*.jpg' --out s3://bucket/found --url http://segment.internal --workers 16
python -m deploy.ray prompts.parquet --out found

An interrupted run can be resumed with the same command. Finished images are skipped unless the image, the parameters or
the service's weights have changed. Images that fail do not stop the run. Exit status: 0 success, 1 failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from mobile_sam_client import MobileSamError

EXIT_INTERRUPTED = 130
"""Exit status of a command ended by Ctrl-C, by shell convention."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m deploy.ray", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "images",
        help="folder, pattern ('photos/**/*.jpg'), .txt file with one path per line, or Parquet file with a column "
        "path and optionally prompts; a local path or a URI (s3://bucket/photos)",
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="folder for the results, a path or a URI")
    parser.add_argument(
        "--url", default="http://127.0.0.1:3000", help="URL of the service, for the workers and this command"
    )
    parser.add_argument("--workers", type=_at_least_1, default=2, metavar="N", help="number of actors (2)")
    parser.add_argument(
        "--in-flight", type=_in_flight, default=8, metavar="N", help="concurrent requests per worker (8)"
    )
    parser.add_argument("--part-size", type=_at_least_1, default=128, metavar="N", help="images per Parquet file (128)")
    parser.add_argument(
        "--points-per-side",
        type=_grid,
        metavar="N",
        help="prompt with a grid of N x N points, by default 32, on images without prompts",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = parser().parse_args(arguments)
    try:
        from deploy.ray import batch  # noqa: PLC0415 (--help works without Ray)
        from deploy.ray.todo import BatchError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return _fail(f"{error}: install the extra `batch` with `make env-batch`")
    grid = {} if options.points_per_side is None else {"points_per_side": options.points_per_side}
    batch_options = batch.BatchOptions(
        images=options.images,
        out=options.out,
        url=options.url,
        workers=options.workers,
        in_flight=options.in_flight,
        part_size=options.part_size,
        everything=grid,
    )
    started = time.monotonic()
    console = Console(stderr=True)
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("Images", total=None)
            summary = batch.run(batch_options, lambda done, total: bar.update(task, completed=done, total=total))
    except KeyboardInterrupt:
        _fail("interrupted; finished images are kept, run the same command to resume")
        return EXIT_INTERRUPTED
    except (BatchError, MobileSamError) as error:
        return _fail(str(error))
    seconds, processed = time.monotonic() - started, summary.images - summary.skipped
    counts = f"{processed} processed, {summary.skipped} skipped, {summary.failed} failed"
    print(f"{summary.images} images: {counts}; {seconds:.1f} s")
    print(f"wrote {options.out}: parts, failures.json")
    return 1 if summary.failed else 0


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 1


def _at_least_1(text: str) -> int:
    return _between(text, 1, 1_000_000)


def _in_flight(text: str) -> int:
    return _between(text, 1, 16)


def _grid(text: str) -> int:
    return _between(text, 1, 64)


def _between(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"expected an integer from {low} to {high}, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
