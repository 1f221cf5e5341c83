"""The service that a command asks, and work on several images with it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import httpx
import typer

from mobile_sam_client import BodyTooLarge, Client, Everything, InvalidImage, InvalidRequest, Problem, Segmentation
from mobile_sam_client._base import checked_url
from mobile_sam_client._commands import output
from mobile_sam_client._commands.files import STANDARD, check_writable, find_images, output_file, read_image
from mobile_sam_client._commands.options import number, option
from mobile_sam_client._commands.output import CannotWrite, CommandError, describe, print_error
from mobile_sam_client._results import Weights

T = TypeVar("T")

PROBE_TIMEOUT_S = 10
IMAGE_ERRORS = (InvalidImage, InvalidRequest, BodyTooLarge, CommandError, ValueError)
"""Errors that concern one image of many."""
Found = tuple[Segmentation | Everything, dict[str, Any], list[str]]
"""A result, and what to print about it: members of JSON, or lines."""


def make_client(client_type: Callable[[str], T], url: str) -> T:
    """Create a client; an invalid API key in the environment is a `CommandError`."""
    try:
        return client_type(url)
    except ValueError as error:
        raise CommandError(describe(error)) from None


def probing_client(url: str) -> Client:
    """Create a client without retries, to find out quickly whether the service is reachable."""
    return make_client(partial(Client, timeout=PROBE_TIMEOUT_S, retries=0), url)


def why_not_ready(url: str, timeout: float) -> str | None:
    """Return the answer of a service's `/readyz`, or the connection error; None if it is ready."""
    try:
        response = httpx.get(f"{url.rstrip('/')}/readyz", timeout=timeout)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return None if response.status_code == httpx.codes.OK else " ".join(response.text.split())[:200]


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Options of the commands that ask the service."""

    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON to standard output, and all else to standard error.")
    ] = False
    url: Annotated[
        str | None, option("URL of the service, by default that in MOBILE_SAM_URL, or http://127.0.0.1:3000.", "URL")
    ] = None

    def address(self) -> str:
        """Return the URL of the service."""
        try:
            return checked_url(self.url)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class ImageOptions(ServiceOptions):
    """Options of the commands that send images."""

    max_side: Annotated[
        int | None,
        number(
            "Send larger images scaled down to a longest side of N pixels; coordinates and masks are those of the "
            "whole image.",
            "--max-side",
            min=1,
        ),
    ] = None

    def client(self, client_type: Callable[..., T], url: str) -> T:
        """Create a client with these options."""
        return make_client(partial(client_type, max_side=self.max_side), url)

    def for_each(
        self,
        images: Iterable[Path],
        templates: Sequence[tuple[Path, Sequence[int]]],
        work: Callable[[Client, bytes, Path, list[Path]], Found],
        *,
        force: bool = False,
    ) -> None:
        """Run a command for each image, and print what it found; errors of one image do not stop the others.

        Args:
            images: paths and patterns.
            templates: output files of each image, as `output_file` takes them. All are checked, and the images are
                read, before the service is asked.
            work: does the work on an image, given its file, its path and its output files.
            force: True to overwrite existing files.

        Raises:
            typer.BadParameter: an output file is also an image, or would be written twice; standard output would have
                JSON as well.
            typer.Exit: an image failed.
        """
        outputs = {
            image: [output_file(template, image, *numbers) for template, numbers in templates]
            for image in find_images(images)
        }
        used = {image.resolve() for image in outputs if image != STANDARD}
        all_outputs = list(itertools.chain(*outputs.values()))
        if self.as_json and STANDARD in all_outputs:
            raise typer.BadParameter("cannot be combined with a file on standard output", param_hint="--json")
        for path in all_outputs:
            if path.resolve() in used:
                text = f"{path} is already used as an input or output file; name outputs by {{stem}} and {{parent}}"
                raise typer.BadParameter(text, param_hint="--out / --picture")
            used.add(path.resolve())

        ready: dict[Path, bytes | None] = {}
        for image, paths in outputs.items():
            with _errors_printed(image):
                for path in paths:
                    if path != STANDARD and not force and path.is_file():
                        raise CommandError(f"{path} exists; overwrite it with --force")
                    if path != STANDARD:
                        check_writable(path)
                file = read_image(image)
                ready[image] = file if image == STANDARD else None  # which is read once
        done: list[Weights] = []
        if ready:
            url = self.address()
            with probing_client(url) as client, suppress(Problem):  # a Problem shows that it is reachable
                client.info()
            with self.client(Client, url) as client, output.log_to_stderr():
                for image, content in ready.items():
                    with _errors_printed(image):
                        found, members, lines = work(client, content or read_image(image), image, outputs[image])
                        self._print(image, found, members, lines, err=STANDARD in outputs[image])
                        done.append(found.weights)
        if done:
            output.print_weights(done[-1], name=not (self.as_json or STANDARD in all_outputs))
        if len(done) < len(outputs):
            raise typer.Exit(1)

    def _print(
        self, image: Path, found: Segmentation | Everything, members: dict[str, Any], lines: list[str], *, err: bool
    ) -> None:
        if self.as_json:
            size: dict[str, Any] = {"width": found.width, "height": found.height}
            if found.region:
                size["region"] = found.region
            weights = asdict(found.weights)
            output.print_json({"image": str(image), "image_id": found.image_id, **size, "weights": weights, **members})
        else:
            for line in lines:
                output.print_line(line, err=err)


async def run_concurrently(images: Collection[T], work: Callable[[T], Awaitable[None]], concurrency: int) -> None:
    """Do some work on each image, a few at a time, and show the progress. The first error stops all."""
    remaining = iter(images)
    with output.progress("Images", len(images)) as update:

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


@contextmanager
def _errors_printed(image: Path) -> Iterator[None]:
    try:
        yield
    except (*IMAGE_ERRORS, OSError) as error:
        if isinstance(error, BrokenPipeError):  # such as `mobile-sam ... | head`
            raise
        print_error(describe(error) if isinstance(error, CannotWrite) else f"{image}: {describe(error)}")
