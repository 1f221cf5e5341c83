"""Opening of weights files: only regular ones, of a bounded size."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_FILE_BYTES = 6 * 2**30
"""Largest weights file; ViT-H in float64 is 5.1 GB."""
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; one that never ends, or waits for a writer, is refused before
    anything is read.

    Raises:
        OSError: the file cannot be read, is not a regular file, or exceeds `MAX_FILE_BYTES`.
    """
    _check(path, path.stat())  # opening a device may already have an effect
    file = open(path, "rb", opener=_opened)  # noqa: SIM115 (with a flag; the caller closes it)
    try:
        _check(path, os.fstat(file.fileno()))
    except OSError:
        file.close()
        raise
    return file


def _opened(path: str, flags: int) -> int:
    """Open a file; do not wait for a pipe's writer, if a pipe has taken the file's place
    meanwhile.
    """
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check(path: Path, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        got = KINDS.get(kind, "something else")
        raise OSError(errno.EINVAL, f"expected a regular file, got {got}", str(path))
    if status.st_size > MAX_FILE_BYTES:
        expected = f"expected a file of at most {MAX_FILE_BYTES} bytes"
        raise OSError(errno.EFBIG, f"{expected}, got {status.st_size}", str(path))
