"""What to find on which image, out of a JSON file."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from mobile_sam_client import Prompt
from mobile_sam_client._commands.failures import CommandError

FIELDS = ("pos_coords", "labels", "neg_coords", "box")
Fields = dict[str, Any]
"""Of a prompt, those that are given."""
FORM = '{"photo.jpg": [{"pos_coords": [[x, y], ...], "neg_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...], ...}'


def read_prompts(path: Path) -> dict[str, list[Fields]]:
    """The prompts of each image.

    Args:
        path: of a JSON file as `FORM` shows it. An image with a single object may have it without the list.

    Returns:
        For each image's name, sorted, its objects; what the numbers in them are the service checks.

    Raises:
        CommandError: the file holds something else; the message says where.
        OSError: it cannot be read.
    """
    try:
        document = json.loads(path.read_bytes(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path}: expected JSON, got what is none: {error}") from None
    if not isinstance(document, dict) or not document:
        raise CommandError(f"{path}: expected {FORM}, got {_kind(document)}")
    return {name: _objects(f"{path}: {name!r}", name, document[name]) for name in sorted(document)}


def prompt_of(fields: Fields) -> Prompt:
    """A prompt as the client takes it."""
    return Prompt(**fields)


def _objects(where: str, name: str, value: Any) -> list[Fields]:
    path = PurePosixPath(name)
    if str(path) != name or path.is_absolute() or ".." in path.parts or not path.name:
        raise CommandError(f"{where}: expected a path from the folder of images, such as 'cats/one.jpg'")
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects:
        raise CommandError(f"{where}: expected a list of objects to find, got {_kind(value)}")
    for index, fields in enumerate(objects):
        if not isinstance(fields, dict) or not fields or not set(fields) <= set(FIELDS):
            got = ", ".join(map(repr, fields)) if isinstance(fields, dict) and fields else _kind(fields)
            raise CommandError(f"{where}: object {index}: expected some of {', '.join(FIELDS)}, got {got}")
    return objects


def _kind(value: Any) -> str:
    """What a wrong value is."""
    if isinstance(value, (dict, list)) and not value:
        return "an empty one"
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
