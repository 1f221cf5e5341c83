"""The results: a folder of Parquet files, each written at once and whole, in which every image has one row."""

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
        ("score", pa.float64()),  # the model's own estimate of the mask's IoU
        ("stability_score", pa.float64()),  # of everything; null where prompts were given
        ("point", pa.list_(pa.float64())),  # of everything: [x, y] of the click that found it
        ("prompt", pa.int32()),  # which of the prompts it answers; null for everything
    ]
)
SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("sha256", pa.string()),  # of the file; null where it could not be read
        ("width", pa.int32()),  # of the displayed image, in pixels
        ("height", pa.int32()),
        ("masks", pa.list_(MASK)),  # null where there is an error
        ("error", pa.string()),
        ("asked", pa.string()),  # JSON
        ("weights", pa.string()),  # SHA-256
        ("size", pa.int64()),  # of the file, in bytes
        ("mtime_ns", pa.int64()),  # of the file, when the images were listed
    ]
)
KNOWN_COLUMNS = ["path", "size", "mtime_ns", "sha256", "asked", "weights", "error"]
READERS = 16


@dataclass(frozen=True)
class Results:
    """The folder of results."""

    store: Store
    folder: str

    def part(self, name: str) -> str:
        """Where a file of results lies."""
        return f"{self.folder}/parts/{name}"

    def is_written(self, name: str) -> bool:
        """Whether a part is there."""
        return self.store.is_there(self.part(name))

    def write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a part, in place of one of the same name."""
        self._write(self.part(name), pa.Table.from_pylist(list(rows), SCHEMA))

    def known(self) -> tuple[dict[str, Known], dict[str, set[str]]]:
        """The row of every image, and rows of the same images beyond that one: paths by the file they stand in.

        There are none of the latter unless two batches wrote here at once.

        Raises:
            BatchError: a file is no part of a batch.
        """
        rows: dict[str, Known] = {}
        beyond: dict[str, set[str]] = {}
        paths = self.store.files_in(f"{self.folder}/parts")
        with ThreadPoolExecutor(READERS) as pool:
            for path, table in zip(paths, pool.map(self._facts, paths), strict=True):
                name = path.rpartition("/")[2]
                for row in table.to_pylist():
                    image = row.pop("path")
                    for same in ("asked", "weights"):  # of most rows: one text for all of them
                        row[same] = sys.intern(row[same])
                    if rows.setdefault(image, known := Known(**row, part=name)) is not known:
                        beyond.setdefault(name, set()).add(image)
        return rows, beyond

    def drop(self, outdated: Mapping[str, Iterable[str]]) -> None:
        """Remove rows.

        Args:
            outdated: paths of images by the file they stand in.
        """
        for name, images in outdated.items():
            path = self.part(name)
            with self.store.system.open_input_file(self.store.own(path)) as source:
                table = pq.read_table(source)
            kept = table.filter(pc.invert(pc.is_in(table["path"], pa.array(sorted(images)))))
            if kept.num_rows:
                self._write(path, kept)
            else:
                self.store.delete(path)

    def write_failures(self, known: Mapping[str, Known]) -> None:
        """Write `failures.json`, which lists what could not be done and why."""
        failures = [{"file": path, "reason": row.error} for path, row in sorted(known.items()) if row.error is not None]
        self.store.write(f"{self.folder}/failures.json", json.dumps(failures, indent=1).encode() + b"\n")

    def _facts(self, path: str) -> pa.Table:
        try:
            with self.store.system.open_input_file(self.store.own(path)) as source:
                return pq.read_table(source, columns=KNOWN_COLUMNS)
        except (pa.ArrowInvalid, KeyError) as error:
            raise BatchError(
                f"{path}: expected a part of a batch, got what is none ({' '.join(str(error).split())}); take it away, "
                "and the images it may have held are done again"
            ) from None

    def _write(self, path: str, table: pa.Table) -> None:
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        self.store.write(path, buffer.getvalue())


def sha256_of(store: Store, path: str) -> str | None:
    """Of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(store.read(path)).hexdigest()
    except OSError:
        return None
