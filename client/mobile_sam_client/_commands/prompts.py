"""Objects to segment, from options and files, and errors of the service in the words of the typed options."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any

import typer

from mobile_sam_client import InvalidRequest, Prompt
from mobile_sam_client._commands.output import CommandError

FORMS = {"point": "X,Y", "negative": "X,Y", "box": "X0,Y0,X1,Y1"}
"""Names in `--object`, which are also options, and the form of their values."""
NAMES_BY_FIELD = {"pos_coords": "point", "neg_coords": "negative", "box": "box"}
"""The same names by field of a request."""
FIELD = re.compile(r"(?:prompts\[(\d+)\]\.)?(\w+)(?:\[(\d+)\])?")
MAX_NAMED_ERRORS = 3
PROMPT_FIELDS = [field.name for field in fields(Prompt) if field.name != "mask_input"]


@dataclass(frozen=True)
class TypedObject:
    """An object to segment, with its coordinates as typed."""

    values: dict[str, list[str]]
    """Texts by a name of `FORMS`."""
    text: str = ""
    """Value of `--object`; empty if the object comes from the options `--point`, `--negative` and `--box`."""

    def prompt(self) -> Prompt:
        points, negatives, boxes = (
            [[float(number) for number in text.split(",")] for text in self.values[name]] for name in FORMS
        )
        return Prompt(points or None, None, negatives or None, boxes[0] if boxes else None)


def point(text: str) -> str:
    return _checked("point", text)


def box(text: str) -> str:
    return _checked("box", text)


def region(text: str) -> list[float] | str:
    return text if text == "auto" else [float(number) for number in _checked("box", text).split(",")]


def _checked(name: str, text: str) -> str:
    form = FORMS[name]
    try:
        finite = [isfinite(float(part)) for part in text.split(",")]
    except ValueError:
        finite = []
    if len(finite) != len(form.split(",")) or not all(finite):
        raise typer.BadParameter(f"expected {form}, {len(form.split(','))} comma-separated numbers, got {text!r}")
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
    points: list[str] | None, negatives: list[str] | None, around: str | None, objects: list[TypedObject] | None
) -> list[TypedObject]:
    """Return the objects of `--object`, or the one of `--point`, `--negative` and `--box`."""
    values = {"point": points or [], "negative": negatives or [], "box": [around] if around else []}
    if objects:
        if any(values.values()):
            raise typer.BadParameter("cannot be combined with --point, --negative and --box", param_hint="--object")
        return objects
    if not (points or around):
        raise typer.BadParameter("expected at least one --point, a --box, or an --object", param_hint="--point / --box")
    return [TypedObject(values)]


@contextmanager
def errors_in_options(ctx: typer.Context, objects: Sequence[TypedObject] = ()) -> Iterator[None]:
    """Replace an `InvalidRequest` that names fields by a `CommandError` that names the options that were typed.

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
            f"{option_of(one['field'], ctx, objects)}: expected {_in_options(one['expected'])}, got {one['got']}"
            for one in error.errors[:MAX_NAMED_ERRORS]
        ]
        request = f" (request {error.request_id})" if error.request_id else ""
        raise CommandError("; ".join(texts) + request) from error


def _in_options(expected: str) -> str:
    """Return what a field should be, with an option in place of a further field."""
    return expected.replace('send "clip": true', "use --clip")


def option_of(field: str, ctx: typer.Context, objects: Sequence[TypedObject]) -> str:
    """Return the option of a field, such as `--point 903,310` for `pos_coords[0]`; the field if there is none."""
    match = FIELD.match(field)
    number, name, index = match.groups() if match else (None, field, None)
    if name in NAMES_BY_FIELD and objects:
        typed, option = objects[int(number or 0)], NAMES_BY_FIELD[name]
        if typed.text:
            return f"--object '{typed.text}'"
        position = "0" if name == "box" else index
        return f"--{option}" if position is None else f"--{option} {typed.values[option][int(position)]}"
    return next((param.opts[0] for param in ctx.command.params if param.name == name), field)


def read_prompts(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of each image, sorted by name, from a JSON file. The service checks their values.

    A single object may stand without a list. A malformed file is a `CommandError` that says where.
    """
    try:
        document = json.loads(path.read_bytes(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        expected = '{"photo.jpg": [{"pos_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...], ...}'
        raise CommandError(f"{path}: expected {expected}, got {_short(document)}")
    if "annotations" in document and "images" in document:
        raise CommandError(f"{path}: this looks like a COCO file; `mobile-sam masks` takes its boxes")
    for name in document:
        given = PurePosixPath(name)
        if str(given) != name or given.is_absolute() or ".." in given.parts or not given.name:
            expected = "expected a path relative to the image folder, such as 'cats/one.jpg'"
            raise CommandError(f"{path}: {name!r}: {expected}")
    return {name: checked_prompts(f"{path}: {name!r}", document[name]) for name in sorted(document)}


def checked_prompts(where: str, value: Any) -> list[dict[str, Any]]:
    """Return the objects of an image: a list, or a single one; fields that are null are left out."""
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects:
        raise CommandError(f"{where}: expected a list of objects, got {_short(value)}")
    for index, given in enumerate(objects):
        if not isinstance(given, dict) or not given or not set(given) <= set(PROMPT_FIELDS):
            expected = f"expected some of {', '.join(PROMPT_FIELDS)}"
            raise CommandError(f"{where}: object {index}: {expected}, got {_short(given)}")
    return [{field: value for field, value in given.items() if value is not None} for given in objects]


def _short(value: Any) -> str:
    return json.dumps(value, default=str)[:80]


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
