"""Work on one image after the other: read it, ask the service, write and print results."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from mobile_sam_client import (
    BodyTooLarge,
    Client,
    Everything,
    InvalidImage,
    InvalidRequest,
    Problem,
    Segmentation,
    Weights,
)
from mobile_sam_client._commands import connection, output
from mobile_sam_client._commands.files import (
    STANDARD,
    check_writable,
    find_images,
    output_file,
    read_image,
)
from mobile_sam_client._commands.output import CommandError, print_error
from mobile_sam_client._errors import describe_error
from mobile_sam_client.batches import CannotWrite

IMAGE_ERRORS = (InvalidImage, InvalidRequest, BodyTooLarge, CommandError, ValueError)
"""Errors that concern one image of many."""


@dataclass(frozen=True)
class Outcome:
    """What a command has found in an image, and what to print about it."""

    result: Segmentation | Everything
    members: dict[str, Any]
    """Further members of the JSON."""
    lines: list[str]
    """Lines to print in place of JSON."""


Work = Callable[[Client, bytes, Path, list[Path]], Outcome]
"""Does the work on an image, given its file, its path and its output files."""


def for_each_image(
    images: Iterable[Path],
    templates: Sequence[tuple[Path, Sequence[int]]],
    work: Work,
    *,
    force: bool,
    as_json: bool,
    url: str | None,
    max_side: int | None,
) -> None:
    """Work on each image, and print what was found; errors of one do not stop the others.

    Args:
        images: paths and patterns.
        templates: output files of each image, as `output_file` takes them. All are checked, and the
            images are read, before the service is asked.
        work: does the work on an image.
        force: True to overwrite existing files.
        as_json: True to print JSON.
        url: URL of the service, or None.
        max_side: longest side of the images that are sent, or None.

    Raises:
        typer.BadParameter: an output file is also an image, or would be written twice; standard
            output would have JSON as well.
        typer.Exit: an image failed.
    """
    outputs: dict[Path, list[Path]] = {}
    for image in find_images(images):
        outputs[image] = [output_file(template, image, *numbers) for template, numbers in templates]
    uses_standard_output = any(STANDARD in paths for paths in outputs.values())
    if as_json and uses_standard_output:
        raise typer.BadParameter(
            "cannot be combined with a file on standard output", param_hint="--json"
        )
    _check_collisions(outputs)

    contents: dict[Path, bytes | None] = {}
    for image, paths in outputs.items():
        with _errors_printed(image):
            _check_output_files(paths, force=force)
            content = read_image(image)
            # Files are read again when it is their turn; standard input can be read only once.
            contents[image] = content if image == STANDARD else None

    succeeded: list[Weights] = []
    if contents:
        checked_url = connection.service_url(url)
        with connection.probing_client(checked_url) as probe, suppress(Problem):
            probe.info()  # a Problem shows that the service is reachable
        with connection.blocking_client(checked_url, max_side) as client, output.log_to_stderr():
            for image, standard_input in contents.items():
                paths = outputs[image]
                with _errors_printed(image):
                    file = standard_input or read_image(image)
                    outcome = work(client, file, image, paths)
                    if as_json:
                        _print_json(image, outcome)
                    else:
                        _print_lines(outcome, err=STANDARD in paths)
                    succeeded.append(outcome.result.weights)
    if succeeded:
        output.print_weights(succeeded[-1], name=not (as_json or uses_standard_output))
    if len(succeeded) < len(outputs):
        raise typer.Exit(1)


def _check_collisions(outputs: Mapping[Path, Iterable[Path]]) -> None:
    """Raise `typer.BadParameter` if a file is written twice, or is also an image.

    Args:
        outputs: output files by image.
    """
    used = {image.resolve() for image in outputs if image != STANDARD}
    for paths in outputs.values():
        for path in paths:
            if path.resolve() in used:
                hint = "name outputs by {stem} and {parent}"
                raise typer.BadParameter(
                    f"{path} is already used as an input or output file; {hint}",
                    param_hint="--out / --picture",
                )
            used.add(path.resolve())


def _check_output_files(paths: Iterable[Path], *, force: bool) -> None:
    """Raise `CommandError` if a file exists, unless `force`, or `CannotWrite`."""
    for path in paths:
        if path == STANDARD:
            continue
        if not force and path.is_file():
            raise CommandError(f"{path} exists; overwrite it with --force")
        check_writable(path)


def _print_json(image: Path, outcome: Outcome) -> None:
    result = outcome.result
    document: dict[str, Any] = {
        "image": str(image),
        "image_id": result.image_id,
        "width": result.width,
        "height": result.height,
    }
    if result.region:
        document["region"] = result.region
    document["weights"] = asdict(result.weights)
    output.print_json({**document, **outcome.members})


def _print_lines(outcome: Outcome, *, err: bool) -> None:
    for line in outcome.lines:
        output.print_line(line, err=err)


@contextmanager
def _errors_printed(image: Path) -> Iterator[None]:
    """Print an error about an image instead of raising it."""
    try:
        yield
    except (*IMAGE_ERRORS, OSError) as error:
        if isinstance(error, BrokenPipeError):  # such as `mobile-sam ... | head`
            raise
        if isinstance(error, CannotWrite):  # which names its file
            print_error(describe_error(error))
        else:
            print_error(f"{image}: {describe_error(error)}")
