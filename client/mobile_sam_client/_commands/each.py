"""Commands on several images: each is done by itself, and errors of one do not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import typer

from mobile_sam_client import BodyTooLarge, Client, InvalidImage, InvalidRequest, Weights
from mobile_sam_client._commands.output import CannotWrite, CommandError, describe, print_error, print_weights

Result = TypeVar("Result")


def for_each(
    images: Collection[Path],
    connection: AbstractContextManager[Client],
    *,
    check: Callable[[Path], object],
    work: Callable[[Client, Path], Weights | None],
    as_json: bool,
) -> None:
    """Run a command for each image.

    Args:
        images: paths of the images.
        connection: yields the client; not entered if no image passes the check.
        check: raises an error if an image cannot be read, or its results cannot be written.
        work: does the work on an image, and returns the weights to print after the last one.
        as_json: True if standard output is for JSON only.

    Raises:
        typer.Exit: an image failed.
    """
    done: dict[Path, Weights | None] = {}
    if ready := _results(images, check):
        with connection as client:
            done = _results(ready, lambda image: work(client, image))
    if weights := next(reversed(done.values()), None):
        print_weights(weights, name=not as_json)
    if len(done) < len(images):
        raise typer.Exit(1)


def _results(images: Collection[Path], function: Callable[[Path], Result]) -> dict[Path, Result]:
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
