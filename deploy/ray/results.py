"""Results: a folder of Parquet files, written atomically, with one row per image."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from deploy.ray.errors import BatchError
from deploy.ray.files import Store
from deploy.ray.plan import Image, Row

MASK = pa.struct(
    {
        "size": pa.list_(pa.int32()),  # [height, width]; with `counts` a COCO run-length mask
        "counts": pa.string(),
        "area": pa.int64(),  # pixels
        "bbox": pa.list_(pa.int32()),  # [left, top, width, height] in pixels
        "score": pa.float64(),  # the model's estimate of the mask's IoU
        "stability_score": pa.float64(),  # everything only; null for prompts
        "point": pa.list_(pa.float64()),  # everything only: [x, y] of the point prompt
        "prompt": pa.int32(),  # index of the prompt; null for everything
        "class": pa.string(),  # data sets only, as the following
        "fields": pa.string(),  # JSON of the object's id and further fields in the data set
        "box_iou": pa.float64(),  # IoU of the mask's box and the given one; null for a point
        "note": pa.string(),  # remark, or why there is no mask: then `counts` is null
    }
)
SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "sha256": pa.string(),  # of the file; null if it could not be read
        "width": pa.int32(),  # of the displayed image, in pixels
        "height": pa.int32(),
        "masks": pa.list_(MASK),  # null if there is an error
        "error": pa.string(),
        "asked": pa.string(),  # request as JSON
        "weights": pa.string(),  # SHA-256
        "size": pa.int64(),  # of the file, in bytes
        "mtime_ns": pa.int64(),  # of the file, when the images were listed
    }
)


@dataclass(frozen=True)
class Results:
    """The folder of results."""

    store: Store
    folder: str

    def write(self, name: str, rows: list[Row]) -> None:
        """Write a part, replacing one of the same name."""
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), buffer, compression="zstd")
        self.store.write(f"{self.folder}/parts/{name}", buffer.getvalue())

    def rows(self) -> Iterator[Row]:
        """Yield the rows without masks, each with the name of its `part`.

        Raises:
            BatchError: a file is not a valid part.
        """
        columns = [*Image._fields, "sha256", "weights", "error", "__filename"]
        try:
            folder = self.store.inside(f"{self.folder}/parts")
            parts = ds.dataset(folder, SCHEMA, "parquet", self.store.system)
            for batch in parts.to_batches(columns=columns, filter=ds.field("path").is_valid()):
                for row in batch.to_pylist():
                    path = row.pop("__filename")
                    yield {**row, "part": path.rpartition("/")[2]}
        except FileNotFoundError:
            return  # the first run
        except pa.ArrowInvalid as error:
            hint = "delete it to process its images again"
            raise BatchError(f"not a valid part of a batch, {hint}: {error}") from None

    def remove_rows(self, outdated: Mapping[str, set[str]]) -> None:
        """Remove the rows of these images, by part."""
        for name, images in outdated.items():
            path = self.store.inside(f"{self.folder}/parts/{name}")
            rows = pq.read_table(path, filesystem=self.store.system).to_pylist()
            remaining = [row for row in rows if row["path"] not in images]
            if remaining:
                self.write(name, remaining)
            else:
                self.store.system.delete_file(path)

    def write_failures(self, others: Iterable[Mapping[str, Any]] = ()) -> set[str]:
        """Write `failures.json`, and return the paths of the failed images.

        Args:
            others: further failures to list after those of images.
        """
        reasons = {row["path"]: row["error"] for row in self.rows() if row["error"] is not None}
        failures: list[Mapping[str, Any]] = []
        for path in sorted(reasons):
            failures.append({"file": path, "reason": reasons[path]})
        failures += others
        content = json.dumps(failures, indent=1).encode() + b"\n"
        self.store.write(f"{self.folder}/failures.json", content)
        return set(reasons)
