"""Values of label files, checked before they are used: numbers, sizes, ids, and members of JSON."""

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any


class DatasetError(ValueError):
    """A data set, or an image or object of it, cannot be used; the message is one line."""


DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Numbers in text. Python's `float` also takes `1_0`, `nan` and digits of other scripts."""
MAX_SHOWN = 80
"""Characters of a value that a message shows."""


def check_size(request: Mapping[str, Any], size_wh: tuple[int, int]) -> None:
    """Raise `DatasetError` if the shapes of a request are for an image of another size."""
    expected = request["size_wh"]
    if expected and tuple(expected) != size_wh:
        sizes = "the data set says {} x {} pixels, but the displayed image has {} x {}"
        raise DatasetError(sizes.format(*expected, *size_wh))


def shown(value: Any) -> str:
    """Return a value for a message, as JSON has it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def number(value: Any, name: str) -> float:
    """Return a finite number, which may be in a string.

    Raises:
        DatasetError: the value is something else, such as a truth value.
    """
    parsed = _parsed(value)
    if parsed is None or not isfinite(parsed):
        raise DatasetError(f"expected a number in {name}, got {shown(value)}")
    return parsed


def pixels(value: Any, name: str) -> int:
    """Return a width or height in pixels; 0 if it is unknown: missing, null, empty or 0."""
    if value is None or value == "":
        return 0
    parsed = _parsed(value)
    if parsed is None or not parsed.is_integer() or parsed < 0:
        raise DatasetError(f"expected {name} as a whole number of pixels, got {shown(value)}")
    return int(parsed)


def size_fields(width: int, height: int) -> dict[str, int]:
    """Return `width` and `height`; nothing if one of them is unknown."""
    return {"width": width, "height": height} if width and height else {}


def identifier(value: Any, name: str) -> str:
    """Return an id as text, so that 1 and "1" are one id, and 1 and true are not."""
    if isinstance(value, str):
        return value
    parsed = None if value is None else _parsed(value)
    if parsed is None or not isfinite(parsed):
        raise DatasetError(f"expected an id in {name}, got {shown(value)}")
    if isinstance(value, float) and parsed.is_integer():
        return str(int(parsed))
    return str(value)


def text(value: Any, name: str) -> str:
    """Return text; a whole number is its digits."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise DatasetError(f"expected {name} as text, got {shown(value)}")
    return str(value)


def member(entry: Mapping[str, Any], name: str) -> Any:
    """Return a member that must be there."""
    if name not in entry:
        raise DatasetError(f"{name} is missing")
    return entry[name]


def json_object(value: Any, name: str = "") -> dict[str, Any]:
    """Return an object of JSON; `name` is the member that it is in."""
    if not isinstance(value, dict):
        place = f" in {name}" if name else ""
        raise DatasetError(f"expected an object of JSON{place}, got {shown(value)}")
    return value


def json_list(value: Any, name: str) -> list[Any]:
    """Return a list in a member."""
    if not isinstance(value, list):
        raise DatasetError(f"expected a list in {name}, got {shown(value)}")
    return value


def sorted_box(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float, float, float]:
    """Return a box of two opposite corners, the upper left one first."""
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _parsed(value: Any) -> float | None:
    """Return a number, possibly infinite; None for what is no number."""
    if isinstance(value, str):
        stripped = value.strip()
        return float(stripped) if DECIMAL.fullmatch(stripped) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
