"""The images of a folder."""

from __future__ import annotations

import os
from pathlib import Path

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


def images_below(folder: Path, without: Path) -> list[str]:
    """The names of all images in a folder and in the folders below it, as paths from there, sorted.

    What begins with a dot is left out, and so is what lies behind a link to a folder.

    Args:
        folder: where to look.
        without: a folder that is left out, should it lie there.

    Raises:
        OSError: the folder cannot be read.
    """
    omitted = without.resolve()
    found = []
    for place, folders, files in os.walk(folder, onerror=_raise):
        here = Path(place)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != omitted]
        found += [
            (here / name).relative_to(folder).as_posix()
            for name in files
            if Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")
        ]
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
