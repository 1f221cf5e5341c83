"""Prompt files: JSON with the objects to segment in each image."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from mobile_sam_client import Prompt
from mobile_sam_client._commands.failures import CommandError

FIELDS = ("pos_coords", "labels", "neg_coords", "box")
Fields = dict[str, Any]
EXPECTED_FORMAT = (
    '{"photo.jpg": [{"pos_coords": [[x, y], ...], "neg_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...], ...}'
)


def read_prompts(path: Path) -> dict[str, list[Fields]]:
    """Read the prompts of each image.

    Args:
        path: a JSON file in `EXPECTED_FORMAT`. A single object may stand without a list.

    Returns:
        The objects per image name, sorted by name. The service checks their values.

    Raises:
        CommandError: the file is malformed; the message says where.
        OSError: the file cannot be read.
    """
    try:
        document = json.loads(path.read_bytes(), parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(document, dict) or not document:
        raise CommandError(f"{path}: expected {EXPECTED_FORMAT}, got {_describe_type(document)}")
    return {name: _objects(f"{path}: {name!r}", name, document[name]) for name in sorted(document)}


def prompt_of(fields: Fields) -> Prompt:
    """Return the client's `Prompt` for the fields."""
    return Prompt(**fields)


def _objects(where: str, name: str, value: Any) -> list[Fields]:
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or not path.name:
        raise CommandError(f"{where}: expected a path relative to the image folder, such as 'cats/one.jpg'")
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects:
        raise CommandError(f"{where}: expected a list of objects, got {_describe_type(value)}")
    for index, fields in enumerate(objects):
        if not isinstance(fields, dict) or not fields or not set(fields) <= set(FIELDS):
            got = ", ".join(map(repr, fields)) if isinstance(fields, dict) and fields else _describe_type(fields)
            raise CommandError(f"{where}: object {index}: expected some of {', '.join(FIELDS)}, got {got}")
    return objects


def _describe_type(value: Any) -> str:
    """Describe an invalid value in a message."""
    if isinstance(value, (dict, list)) and not value:
        return "an empty list" if isinstance(value, list) else "an empty object"
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
