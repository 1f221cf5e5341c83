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

    An image is finished if it has a row without an error for the same request, weights and file. A
    file with another size or time than before is hashed. Two rows of one image exist only if two
    batches wrote to the folder at once.

    Args:
        images: all images by path.
        rows: rows of earlier runs, each with its `part`.
        weights: SHA-256 of the service's weights.
        sha256: returns the SHA-256 of the file at a path, None if it cannot be read; called in
            threads.
    """
    todo = dict(images)
    unsure: list[Row] = []
    outdated: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        path = row["path"]
        image = images.get(path)
        if image is None:  # no longer listed
            continue
        is_second_row = path not in todo
        is_same_request = row["asked"] == image.asked and row["weights"] == weights
        if is_second_row or not is_same_request or row["error"] is not None:
            outdated[row["part"]].add(path)
        elif _is_same_file(row, image):
            del todo[path]
        else:
            unsure.append(row)
    paths = [row["path"] for row in unsure]
    with ThreadPoolExecutor(MAX_READERS) as pool:
        for row, file_sha256 in zip(unsure, pool.map(sha256, paths), strict=True):
            if row["path"] in todo and file_sha256 == row["sha256"]:
                del todo[row["path"]]
            else:
                outdated[row["part"]].add(row["path"])
    return sorted(todo.values()), outdated


def _is_same_file(row: Row, image: Image) -> bool:
    """Return whether a file has the size and time of its row, so that it need not be hashed."""
    if image.mtime_ns is None:
        return False
    return (row["size"], row["mtime_ns"]) == (image.size, image.mtime_ns)
