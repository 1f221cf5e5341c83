"""Plan of a batch: which images to segment, and which rows of earlier runs to remove before."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

MAX_READERS = 16
Row = dict[str, Any]
"""Row of an image, with the columns in `deploy.ray.results.SCHEMA`."""


class Image(NamedTuple):
    """An image and its request."""

    path: str
    size: int | None
    """Bytes of the file; None if it does not exist."""
    mtime_ns: int | None
    """Modification time, or None if unknown."""
    asked: str
    """Request as canonical JSON: `everything` with its parameters, or a list of `prompts`."""


def make_plan(
    images: Mapping[str, Image],
    rows: Iterable[Row],
    weights: str,
    sha256: Callable[[str], str | None],
) -> tuple[list[Image], dict[str, set[str]]]:
    """Return the images to segment, sorted, and by part the images that must lose their rows.

    An image is finished if it has a row without an error for the same request, weights and file. A file with another
    size or time than before is hashed. Two rows of one image exist only if two batches wrote to the folder at once.

    Args:
        images: all images by path.
        rows: rows of earlier runs, each with its `part`.
        weights: SHA-256 of the service's weights.
        sha256: returns the SHA-256 of the file at a path, None if it cannot be read; called in threads.
    """
    todo, unsure, outdated = dict(images), list[Row](), defaultdict[str, set[str]](set)
    for row in rows:
        path = row["path"]
        if (image := images.get(path)) is None:
            continue
        if path not in todo or (row["asked"], row["weights"], row["error"]) != (image.asked, weights, None):
            outdated[row["part"]].add(path)
        elif image.mtime_ns is not None and (row["size"], row["mtime_ns"]) == (image.size, image.mtime_ns):
            del todo[path]
        else:
            unsure.append(row)
    with ThreadPoolExecutor(MAX_READERS) as pool:
        for row, found in zip(unsure, pool.map(sha256, [row["path"] for row in unsure]), strict=True):
            if row["path"] in todo and found == row["sha256"]:
                del todo[row["path"]]
            else:
                outdated[row["part"]].add(row["path"])
    return sorted(todo.values()), outdated
