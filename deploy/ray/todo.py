"""Plan of a batch: unfinished images and their parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class BatchError(Exception):
    """A batch failed; the message is one line with cause and remedy."""


class Image(NamedTuple):
    """An image and its request."""

    path: str
    size: int | None
    """Bytes of the file; None if it does not exist."""
    mtime_ns: int | None
    """Modification time, or None if unknown."""
    asked: str
    """Request as JSON, as returned by `canonical_request`."""


class Known(NamedTuple):
    """Facts about an image from an earlier run's row."""

    size: int | None
    mtime_ns: int | None
    sha256: str | None
    asked: str
    weights: str
    error: str | None
    part: str
    """Name of the file with the row."""


@dataclass
class Plan:
    """Images by what has to be done with them."""

    done: int = 0
    """Number of finished images."""
    todo: list[Image] = field(default_factory=list)
    """Images to segment."""
    unsure: list[Image] = field(default_factory=list)
    """Images whose file has another time or size than before; finished if the SHA-256 is unchanged."""


def canonical_request(asked: Mapping[str, Any]) -> str:
    """Return a request as canonical JSON, which rows are compared by.

    Args:
        asked: `everything` with its parameters, or a list of `prompts`.
    """
    return json.dumps(asked, sort_keys=True, separators=(",", ":"))


def distinct(images: Sequence[Image]) -> list[Image]:
    """Return the images without duplicates, sorted by path.

    Raises:
        BatchError: an image is listed with two different requests.
    """
    found: dict[str, Image] = {}
    for image in images:
        if found.setdefault(image.path, image).asked != image.asked:
            raise BatchError(f"{image.path}: listed twice with different prompts")
    return [found[path] for path in sorted(found)]


def make_plan(images: Sequence[Image], known: Mapping[str, Known], weights: str) -> Plan:
    """Sort images into finished, unfinished and possibly changed ones.

    Args:
        images: all images.
        known: existing rows by path.
        weights: SHA-256 of the service's weights.
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
    """Return the images per part whose rows must be removed before they are segmented again."""
    found: dict[str, set[str]] = {}
    for image in todo:
        if image.path in known:
            found.setdefault(known[image.path].part, set()).add(image.path)
    return found


def parts(todo: Sequence[Image], size: int, weights: str) -> Iterator[tuple[str, Sequence[Image]]]:
    """Yield the name and images of each part.

    The name depends only on images, requests and weights, so that a repeated part replaces the first.
    """
    for start in range(0, len(todo), size):
        chunk = todo[start : start + size]
        text = json.dumps([weights, *([image.path, image.asked] for image in chunk)])
        yield f"part-{hashlib.sha256(text.encode()).hexdigest()[:32]}.parquet", chunk
