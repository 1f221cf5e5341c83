"""File name rules: images and patterns."""

from __future__ import annotations

import re
from collections.abc import Callable

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def is_image(path: str, root: str) -> bool:
    """Return whether a path has an image suffix and no hidden component.

    Args:
        path: path separated by `/`.
        root: folder whose own components are not checked.
    """
    names = path[len(root) :].strip("/").split("/")
    return path.lower().endswith(SUFFIXES) and not any(name.startswith(".") for name in names)


def is_pattern(path: str) -> bool:
    """Return whether a path is a pattern."""
    return "*" in path


def folder_of(pattern: str) -> str:
    """Return the folder that contains all matches of a pattern; it ends in `/` unless empty."""
    before = pattern.partition("*")[0]
    return before[: before.rfind("/") + 1]


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for a pattern: `*` matches within one name, `**/` any number of folders."""
    pieces = re.split(r"(\*\*/|\*+)", pattern)
    expressions = {"**/": "(?:.*/)?", "**": ".*"}
    text = "".join(expressions.get(piece, "[^/]*") if "*" in piece else re.escape(piece) for piece in pieces)
    compiled = re.compile(text, re.DOTALL)
    return lambda path: compiled.fullmatch(path) is not None
