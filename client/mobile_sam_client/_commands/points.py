"""Parsing of points and boxes on the command line: `320,240` and `10,20,110,220`."""

from __future__ import annotations

import math
from typing import NamedTuple

import typer


class Point(NamedTuple):
    """A point in pixels of the displayed image."""

    x: float
    y: float


class Box(NamedTuple):
    """A box in pixels of the displayed image: top-left and bottom-right corner."""

    x0: float
    y0: float
    x1: float
    y1: float


def point(text: str) -> Point:
    """Parse `X,Y`.

    Raises:
        typer.BadParameter: the text is not a point.
    """
    x, y = _numbers(text, "X,Y", 2)
    return Point(x, y)


def box(text: str) -> Box:
    """Parse `X0,Y0,X1,Y1`.

    Raises:
        typer.BadParameter: the text is not a box.
    """
    x0, y0, x1, y1 = _numbers(text, "X0,Y0,X1,Y1", 4)
    return Box(x0, y0, x1, y1)


def _numbers(text: str, form: str, count: int) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or not all(map(math.isfinite, values)):
        raise typer.BadParameter(f"expected {form}, {count} comma-separated numbers, got {text!r}")
    return values
