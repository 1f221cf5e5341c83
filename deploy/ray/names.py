"""Which names are those of images, and which a pattern means."""

from __future__ import annotations

import re
from collections.abc import Callable

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def is_image(path: str, below: str) -> bool:
    """Whether a path has an image's ending, and no name on its way begins with a dot.

    Args:
        path: with `/` between its names.
        below: the folder from where on names count.
    """
    names = path[len(below) :].strip("/").split("/")
    return path.lower().endswith(SUFFIXES) and not any(name.startswith(".") for name in names)


def is_pattern(path: str) -> bool:
    """Whether a path stands for several."""
    return "*" in path


def folder_of(pattern: str) -> str:
    """The folder below which all paths lie that a pattern means; it ends in `/` unless it is empty."""
    before = pattern.partition("*")[0]
    return before[: before.rfind("/") + 1]


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path is meant: `*` stands for any part of one name, `**/` for any folders, also none."""
    pieces = re.split(r"(\*\*/|\*+)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*"}
    text = "".join(meaning.get(piece, "[^/]*") if "*" in piece else re.escape(piece) for piece in pieces)
    compiled = re.compile(text, re.DOTALL)
    return lambda path: compiled.fullmatch(path) is not None
