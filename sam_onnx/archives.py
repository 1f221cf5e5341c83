"""Zip archives whose directory and entries cost no more than their bytes promise."""

import sys
import zipfile
from collections import Counter
from typing import Any, BinaryIO, cast

from sam_onnx.errors import CheckpointError
from sam_onnx.texts import shown

MAX_DIRECTORY_BYTES = 2 * 2**20
"""Size of an archive's list of entries: 20,000 at least. A checkpoint has a thousand."""
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Python decompresses others without a bound, whatever is asked for."""


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip archive, whose entries have different names and a compression that can be bounded.

    Raises:
        CheckpointError: the list of entries is too long, a name is there twice, or an entry has
            another compression.
        zipfile.BadZipFile and others: the archive is damaged.
    """
    bounded = _Bounded(file)
    archive = zipfile.ZipFile(cast("BinaryIO", bounded))
    bounded.max_read_bytes = sys.maxsize  # the list has been read
    entries = archive.infolist()
    names = Counter(entry.filename for entry in entries)
    if twice := [name for name, count in names.items() if count > 1]:
        raise CheckpointError(f"expected each entry once, got {shown(twice[0])} twice")
    if others := [entry for entry in entries if entry.compress_type not in COMPRESSIONS]:
        got = f"{shown(others[0].filename)} by method {others[0].compress_type}"
        raise CheckpointError(f"expected stored or deflated entries, got {got}")
    return archive


class _Bounded:
    """File of which at most `max_read_bytes` are read at once: the list of entries is read in
    one piece.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.max_read_bytes = MAX_DIRECTORY_BYTES

    def read(self, size: int = -1) -> bytes:
        if size > self.max_read_bytes:
            raise CheckpointError(
                f"expected a list of entries of at most {self.max_read_bytes} bytes, got {size}"
            )
        return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
