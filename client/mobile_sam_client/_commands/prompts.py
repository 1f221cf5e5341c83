"""Objects to segment, from options and files.

Errors of the service are told in the words of the typed options.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any

import typer

from mobile_sam_client import FieldError, InvalidRequest, Prompt
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client.batches import check_prompts

FORMS = {"point": "X,Y", "negative": "X,Y", "box": "X0,Y0,X1,Y1"}
"""Names in `--object`, which are also options, and the form of their values."""
NAMES_BY_FIELD = {"pos_coords": "point", "neg_coords": "negative", "box": "box"}
"""The same names by field of a request."""
FIELD = re.compile(r"(?:prompts\[(\d+)\]\.)?(\w+)(?:\[(\d+)\])?")
MAX_NAMED_ERRORS = 3


@dataclass(frozen=True)
class TypedObject:
    """An object to segment, with its coordinates as typed."""

    values: dict[str, list[str]]
    """Texts by a name of `FORMS`."""
    text: str = ""
    """Value of `--object`; empty if the object comes from the options `--point`, `--negative` and
    `--box`."""

    def prompt(self) -> Prompt:
        """Return the object as the client takes it."""
        points = [_numbers(text) for text in self.values["point"]]
        negatives = [_numbers(text) for text in self.values["negative"]]
        boxes = [_numbers(text) for text in self.values["box"]]
        return Prompt(
            pos_coords=points or None,
            neg_coords=negatives or None,
            box=boxes[0] if boxes else None,
        )


def point(text: str) -> str:
    """Check a value of `--point` or `--negative`."""
    return _checked("point", text)


def box(text: str) -> str:
    """Check a value of `--box`."""
    return _checked("box", text)


def region(text: str) -> list[float] | str:
    """Parse a value of `--region`."""
    if text == "auto":
        return text
    return _numbers(_checked("box", text))


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _checked(name: str, text: str) -> str:
    """Return the text if it has the form of a name in `FORMS`; else raise `typer.BadParameter`."""
    form = FORMS[name]
    count = len(form.split(","))
    try:
        numbers = _numbers(text)
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(map(isfinite, numbers)):
        expected = f"expected {form}, {count} comma-separated numbers"
        raise typer.BadParameter(f"{expected}, got {text!r}")
    return text


def typed_object(text: str) -> TypedObject:
    """Parse a value of `--object`, such as `box=299,518,492,767;negative=400,800`."""
    values: dict[str, list[str]] = {name: [] for name in FORMS}
    for part in text.split(";"):
        name, _, value = part.strip().partition("=")
        if name not in FORMS:
            expected = ", ".join(f"{name}={form}" for name, form in FORMS.items())
            raise typer.BadParameter(f"expected {expected} separated by ';', got {part!r}")
        values[name].append(_checked(name, value))
    if len(values["box"]) > 1 or not (values["point"] or values["box"]):
        raise typer.BadParameter(f"expected at least one point, a box, or both, got {text!r}")
    return TypedObject(values, text)


def typed_objects(
    points: list[str] | None,
    negatives: list[str] | None,
    around: str | None,
    objects: list[TypedObject] | None,
) -> list[TypedObject]:
    """Return the objects of `--object`, or the one of `--point`, `--negative` and `--box`."""
    values = {
        "point": points or [],
        "negative": negatives or [],
        "box": [around] if around else [],
    }
    if objects:
        if any(values.values()):
            raise typer.BadParameter(
                "cannot be combined with --point, --negative and --box", param_hint="--object"
            )
        return objects
    if not (points or around):
        raise typer.BadParameter(
            "expected at least one --point, a --box, or an --object", param_hint="--point / --box"
        )
    return [TypedObject(values)]


@contextmanager
def errors_in_options(ctx: typer.Context, objects: Sequence[TypedObject] = ()) -> Iterator[None]:
    """Replace an `InvalidRequest` about fields by a `CommandError` about the typed options.

    Args:
        ctx: context of the command; its parameters have the names of the request's fields.
        objects: the objects of the request.
    """
    try:
        yield
    except InvalidRequest as error:
        if not error.errors:
            raise
        texts = [
            _in_options(field_error, ctx, objects)
            for field_error in error.errors[:MAX_NAMED_ERRORS]
        ]
        request = f" (request {error.request_id})" if error.request_id else ""
        raise CommandError("; ".join(texts) + request) from error


def _in_options(error: FieldError, ctx: typer.Context, objects: Sequence[TypedObject]) -> str:
    """Return an error about a field with options in place of the names of fields."""
    option = option_of(error["field"], ctx, objects)
    expected = error["expected"].replace('send "clip": true', "use --clip")
    return f"{option}: expected {expected}, got {error['got']}"


def option_of(field: str, ctx: typer.Context, objects: Sequence[TypedObject]) -> str:
    """Return the option of a field, such as `--point 903,310` for `pos_coords[0]`.

    A field without an option is returned itself.
    """
    match = FIELD.match(field)
    number, name, index = match.groups() if match else (None, field, None)
    if name in NAMES_BY_FIELD and objects:
        typed = objects[int(number or 0)]
        if typed.text:
            return f"--object '{typed.text}'"
        option = NAMES_BY_FIELD[name]
        position = "0" if name == "box" else index
        if position is None:  # an error about all points
            return f"--{option}"
        return f"--{option} {typed.values[option][int(position)]}"
    for parameter in ctx.command.params:
        if parameter.name == name:
            return parameter.opts[0]
    return field


def read_prompts(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of each image, sorted by name, from a JSON file.

    A single object may stand without a list. The service checks the values of the objects.

    Raises:
        CommandError: the file is malformed; the message says where.
    """
    try:
        document = json.loads(path.read_bytes(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        example = (
            '{"photo.jpg": [{"pos_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...], ...}'
        )
        got = json.dumps(document)[:80]
        raise CommandError(f"{path}: expected {example}, got {got}")
    if "annotations" in document and "images" in document:
        hint = "`mobile-sam masks` takes its boxes"
        raise CommandError(f"{path}: this looks like a COCO file; {hint}")
    for name in document:
        if not _is_clean_relative_path(name):
            expected = "expected a path relative to the image folder, such as 'cats/one.jpg'"
            raise CommandError(f"{path}: {name!r}: {expected}")
    prompts: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(document):
        try:
            prompts[name] = check_prompts(document[name])
        except ValueError as error:
            raise CommandError(f"{path}: {name!r}: {error}") from None
    return prompts


def _is_clean_relative_path(name: str) -> bool:
    """Return whether a path stays in its folder and is written as `list_images` writes it."""
    path = PurePosixPath(name)
    return (
        str(path) == name and bool(path.name) and not path.is_absolute() and ".." not in path.parts
    )


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
