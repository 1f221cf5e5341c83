"""What is left to be done, and how it is cut into parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class BatchError(Exception):
    """A batch cannot be done; the message is one line that says why and what helps."""


class Image(NamedTuple):
    """An image, and what is asked about it."""

    path: str
    size: int | None
    """Bytes of the file; None where there is none."""
    mtime_ns: int | None
    """When it was last changed, where that is known."""
    asked: str
    """JSON, as `question` makes it."""


class Known(NamedTuple):
    """What an earlier run wrote of an image."""

    size: int | None
    mtime_ns: int | None
    sha256: str | None
    asked: str
    weights: str
    error: str | None
    part: str
    """The file that has the row."""


@dataclass
class Plan:
    """What becomes of each image."""

    done: int = 0
    """Images that need nothing."""
    todo: list[Image] = field(default_factory=list)
    """Images to ask about."""
    unsure: list[Image] = field(default_factory=list)
    """Images whose file has another time or size than the one that was asked about. If the SHA-256 is still the same,
    they need nothing."""


def question(asked: Mapping[str, Any]) -> str:
    """What is asked, as the text that rows are compared by.

    Args:
        asked: `everything` with its parameters, or a list of `prompts`.
    """
    return json.dumps(asked, sort_keys=True, separators=(",", ":"))


def distinct(images: Sequence[Image]) -> list[Image]:
    """The images, each once, in the order of their paths.

    Raises:
        BatchError: one stands there with two questions.
    """
    found: dict[str, Image] = {}
    for image in images:
        if found.setdefault(image.path, image).asked != image.asked:
            raise BatchError(f"{image.path}: expected each image once, got it with two different lists of prompts")
    return [found[path] for path in sorted(found)]


def make_plan(images: Sequence[Image], known: Mapping[str, Known], weights: str) -> Plan:
    """What is left to do.

    Args:
        images: all of them.
        known: the rows that there are, by path.
        weights: SHA-256 of those that the service has.
    """
    plan = Plan()
    for image in images:
        row = known.get(image.path)
        if row is None or row.error is not None or (row.asked, row.weights) != (image.asked, weights):
            plan.todo.append(image)
        elif image.mtime_ns is not None and (row.size, row.mtime_ns) == (image.size, image.mtime_ns):
            plan.done += 1
        else:
            plan.unsure.append(image)
    return plan


def outdated(todo: Sequence[Image], known: Mapping[str, Known]) -> dict[str, set[str]]:
    """The rows that have to go before new ones of the same images are written: paths by the file they stand in."""
    found: dict[str, set[str]] = {}
    for image in todo:
        if image.path in known:
            found.setdefault(known[image.path].part, set()).add(image.path)
    return found


def parts(todo: Sequence[Image], size: int, weights: str) -> Iterator[tuple[str, Sequence[Image]]]:
    """What is written as one file: its name, and its images.

    The name follows from images and questions alone: who does a part a second time replaces the first.
    """
    for start in range(0, len(todo), size):
        some = todo[start : start + size]
        text = json.dumps([weights, *([image.path, image.asked] for image in some)])
        yield f"part-{hashlib.sha256(text.encode()).hexdigest()[:32]}.parquet", some
