"""Clients for `--url` and `--local`, and work on several images with them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import typer

from mobile_sam_client import BodyTooLarge, Client, InvalidImage, InvalidRequest, Problem, Weights
from mobile_sam_client._commands.files import check_distinct, check_free, read_image
from mobile_sam_client._commands.local_service import local_service
from mobile_sam_client._commands.output import (
    CannotWrite,
    CommandError,
    describe,
    log_to_stderr,
    print_error,
    print_weights,
    progress,
)

T = TypeVar("T")

PROBE_TIMEOUT_S = 10


@contextmanager
def service_url(url: str, local: bool) -> Iterator[str]:
    """Yield the URL of the service: `url`, or a local service's, which runs for the duration of the block."""
    if local:
        with local_service() as local_url:
            yield local_url
    else:
        yield url


def make_client(client_type: Callable[[str], T], url: str) -> T:
    """Create a client; an invalid API key in the environment is a `CommandError`."""
    try:
        return client_type(url)
    except ValueError as error:
        raise CommandError(describe(error)) from None


def probing_client(url: str) -> Client:
    """Create a client without retries, to find out quickly whether the service is reachable."""
    return make_client(partial(Client, timeout=PROBE_TIMEOUT_S, retries=0), url)


def for_each(
    outputs: Mapping[Path, Sequence[Path]],
    work: Callable[[Client, Path, bytes], Weights | None],
    *,
    url: str,
    local: bool,
    as_json: bool,
    force: bool = False,
) -> None:
    """Run a command for each image; errors of one image do not stop the others.

    Args:
        outputs: output files of each image. All are checked, and the images are read, before the service is asked.
        work: does the work on an image, given its path and file; returns the weights to print after the last one.
        url: URL of the service.
        local: True to start a service for this run.
        as_json: True if standard output is for JSON only.
        force: True to overwrite existing files.

    Raises:
        typer.BadParameter: an output file is also an image, or would be written twice.
        typer.Exit: an image failed.
    """
    check_distinct(outputs)

    def check(image: Path) -> None:
        check_free(outputs[image], force=force)
        read_image(image)

    done: dict[Path, Weights | None] = {}
    if ready := _results(outputs, check):
        with service_url(url, local) as address:
            with probing_client(address) as client, suppress(Problem):  # a Problem shows that it is reachable
                client.info()
            with make_client(Client, address) as client, log_to_stderr():
                done = _results(ready, lambda image: work(client, image, read_image(image)))
    if weights := next(reversed(done.values()), None):
        print_weights(weights, name=not as_json)
    if len(done) < len(outputs):
        raise typer.Exit(1)


async def run_concurrently(images: Collection[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Do some work on each image, a few at a time, and show the progress. The first error stops all."""
    remaining = iter(images)
    with progress("Images", len(images)) as update:

        async def worker() -> None:
            for image in remaining:
                await work(image)
                update(advance=1)

        workers = [asyncio.create_task(worker()) for _ in range(concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


def _results(images: Collection[Path], function: Callable[[Path], T]) -> dict[Path, T]:
    """Return the function's results, without images for which it fails; those errors are printed."""
    results = {}
    for image in images:
        try:
            results[image] = function(image)
        except (InvalidImage, InvalidRequest, BodyTooLarge, CommandError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # such as `mobile-sam ... | head`
                raise
            print_error(describe(error) if isinstance(error, CannotWrite) else f"{image}: {describe(error)}")
    return results
