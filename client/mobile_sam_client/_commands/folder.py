"""Search for images in a folder."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


def list_images(folder: Path, excluded: Path) -> list[str]:
    """Return the sorted relative paths of all images in a folder and its subfolders.

    Hidden files and folders are skipped, and links to folders are not followed.

    Args:
        folder: folder to search.
        excluded: subfolder to skip.

    Raises:
        OSError: the folder cannot be read.
    """
    excluded = excluded.resolve()
    found = []
    for parent, folders, files in os.walk(folder, onerror=_raise):
        here = Path(parent)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != excluded]
        found += [
            (here / name).relative_to(folder).as_posix()
            for name in files
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
        ]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
