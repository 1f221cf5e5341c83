"""Results: a folder of Parquet files, written atomically, with one row per image."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deploy.ray.files import Store
from deploy.ray.todo import BatchError, Known

MASK = pa.struct(
    [
        ("size", pa.list_(pa.int32())),  # [height, width]; with `counts` a COCO run-length mask
        ("counts", pa.string()),
        ("area", pa.int64()),  # pixels
        ("bbox", pa.list_(pa.int32())),  # [left, top, width, height] in pixels
        ("score", pa.float64()),  # the model's estimate of the mask's IoU
        ("stability_score", pa.float64()),  # everything only; null for prompts
        ("point", pa.list_(pa.float64())),  # everything only: [x, y] of the point prompt
        ("prompt", pa.int32()),  # index of the prompt; null for everything
    ]
)
SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("sha256", pa.string()),  # of the file; null if it could not be read
        ("width", pa.int32()),  # of the displayed image, in pixels
        ("height", pa.int32()),
        ("masks", pa.list_(MASK)),  # null if there is an error
        ("error", pa.string()),
        ("asked", pa.string()),  # request as JSON
        ("weights", pa.string()),  # SHA-256
        ("size", pa.int64()),  # of the file, in bytes
        ("mtime_ns", pa.int64()),  # of the file, when the images were listed
    ]
)
KNOWN_COLUMNS = ["path", "size", "mtime_ns", "sha256", "asked", "weights", "error"]
MAX_READERS = 16


@dataclass(frozen=True)
class Results:
    """The folder of results."""

    store: Store
    folder: str

    def part_path(self, name: str) -> str:
        """Return the path of a result file."""
        return f"{self.folder}/parts/{name}"

    def has_part(self, name: str) -> bool:
        """Return whether a part exists."""
        return self.store.exists(self.part_path(name))

    def write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a part, replacing one of the same name."""
        self._write(self.part_path(name), pa.Table.from_pylist(list(rows), SCHEMA))

    def read_known(self) -> tuple[dict[str, Known], dict[str, set[str]]]:
        """Return one row per image, and the images of duplicate rows per part.

        Duplicates exist only if two batches wrote to the folder at once.

        Raises:
            BatchError: a file is not a valid part.
        """
        rows: dict[str, Known] = {}
        duplicates: dict[str, set[str]] = {}
        paths = self.store.files_in(f"{self.folder}/parts")
        with ThreadPoolExecutor(MAX_READERS) as pool:
            for path, table in zip(paths, pool.map(self._read_facts, paths), strict=True):
                name = path.rpartition("/")[2]
                for row in table.to_pylist():
                    image = row.pop("path")
                    for column in ("asked", "weights"):  # mostly the same strings
                        row[column] = sys.intern(row[column])
                    if rows.setdefault(image, known := Known(**row, part=name)) is not known:
                        duplicates.setdefault(name, set()).add(image)
        return rows, duplicates

    def remove_rows(self, outdated: Mapping[str, Iterable[str]]) -> None:
        """Remove rows.

        Args:
            outdated: image paths per part.
        """
        for name, images in outdated.items():
            path = self.part_path(name)
            with self.store.system.open_input_file(self.store.path_in_system(path)) as source:
                table = pq.read_table(source)
            kept = table.filter(pc.invert(pc.is_in(table["path"], pa.array(sorted(images)))))
            if kept.num_rows:
                self._write(path, kept)
            else:
                self.store.delete(path)

    def write_failures(self, known: Mapping[str, Known]) -> None:
        """Write `failures.json`, the list of failed images with reasons."""
        failures = [{"file": path, "reason": row.error} for path, row in sorted(known.items()) if row.error is not None]
        self.store.write(f"{self.folder}/failures.json", json.dumps(failures, indent=1).encode() + b"\n")

    def _read_facts(self, path: str) -> pa.Table:
        try:
            with self.store.system.open_input_file(self.store.path_in_system(path)) as source:
                return pq.read_table(source, columns=KNOWN_COLUMNS)
        except (pa.ArrowInvalid, KeyError) as error:
            raise BatchError(
                f"{path}: not a valid part of a batch ({' '.join(str(error).split())}); delete it to process its "
                "images again"
            ) from None

    def _write(self, path: str, table: pa.Table) -> None:
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        self.store.write(path, buffer.getvalue())


def sha256_of(store: Store, path: str) -> str | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        return hashlib.sha256(store.read(path)).hexdigest()
    except OSError:
        return None
