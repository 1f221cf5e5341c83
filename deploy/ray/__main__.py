"""Segments many images with workers on Ray, and writes Parquet.

python -m deploy.ray photos --out found
python -m deploy.ray 's3://bucket/photos/**/*.jpg' --out s3://bucket/found --url http://segment.internal --workers 16
python -m deploy.ray prompts.parquet --out found

Started again it goes on where it ended: what is done is not done again, unless the image, what is asked, or the
service's weights changed. A file that cannot be done never stops the rest. Exit status: 0 all well, 1 something failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from mobile_sam_client import MobileSamError

INTERRUPTED = 130
"""The exit status that shells give a command ended by Ctrl-C."""


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    text = argparse.RawDescriptionHelpFormatter
    found = argparse.ArgumentParser("python -m deploy.ray", description=__doc__, formatter_class=text)
    found.add_argument(
        "images",
        help="a folder, a pattern ('photos/**/*.jpg'), a .txt file with a path a line, or a Parquet file with a column "
        "path and perhaps prompts; on this machine or, by URI, elsewhere (s3://bucket/photos)",
    )
    found.add_argument("--out", required=True, metavar="FOLDER", help="where the results go, a path or a URI")
    found.add_argument(
        "--url", default="http://127.0.0.1:3000", help="of the service, as workers and this command see it"
    )
    found.add_argument("--workers", type=_at_least_1, default=2, metavar="N", help="actors (2)")
    found.add_argument(
        "--in-flight", type=_in_flight, default=8, metavar="N", help="images that each worker asks about at once (8)"
    )
    found.add_argument(
        "--part-size", type=_at_least_1, default=128, metavar="N", help="images of one Parquet file (128)"
    )
    found.add_argument(
        "--points-per-side",
        type=_grid,
        metavar="N",
        help="click on a grid of N x N points, 32 unless told, on images without prompts",
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit status."""
    given = parser().parse_args(arguments)
    try:
        from deploy.ray import batch  # noqa: PLC0415 (it takes Ray, and --help should not)
        from deploy.ray.todo import BatchError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        return _fail(f"{error}: expected the packages of the extra `batch`, as `make env-batch` installs them")
    grid = {} if given.points_per_side is None else {"points_per_side": given.points_per_side}
    wanted = batch.Wanted(
        given.images, given.out, given.url, given.workers, given.in_flight, given.part_size, everything=grid
    )
    begun = time.monotonic()
    console = Console(stderr=True)
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("Images", total=None)
            done = batch.run(wanted, lambda now, total: bar.update(task, completed=now, total=total))
    except KeyboardInterrupt:
        _fail("interrupted; what is done is kept, and the same command goes on from there")
        return INTERRUPTED
    except (BatchError, MobileSamError) as error:
        return _fail(str(error))
    seconds, now = time.monotonic() - begun, done.images - done.before
    print(f"{done.images} images: {now} done now, {done.before} before, {done.failed} failed; {seconds:.1f} s")
    print(f"wrote {given.out}: parts, failures.json")
    return 1 if done.failed else 0


def _fail(words: str) -> int:
    print(f"error: {words}", file=sys.stderr)
    return 1


def _at_least_1(text: str) -> int:
    return _between(text, 1, 1_000_000)


def _in_flight(text: str) -> int:
    return _between(text, 1, 16)


def _grid(text: str) -> int:
    return _between(text, 1, 64)


def _between(text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
        raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
