"""CSV: a row has `image`, and x0, y0, x1, y1 of a box or x, y of a point, in pixels.

The columns `label` and `id` are optional.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from mobile_sam_client._datasets.dataset import Dataset, naming
from mobile_sam_client._datasets.values import DatasetError, number, sorted_box

BOX_COLUMNS, POINT_COLUMNS = ("x0", "y0", "x1", "y1"), ("x", "y")
NO_LABEL = "object"


def read_csv(data: Dataset, annotations: str) -> None:
    """Read the boxes and points of a CSV file."""
    with naming(annotations):
        rows = csv.reader(io.StringIO(data.text(annotations), newline=""), strict=True)
        try:
            columns = [name.strip() for name in next(rows, [])]
            _check_columns(columns)
            for row in rows:
                if row:
                    with data.reporting(annotations, line=rows.line_num):
                        _read_row(data, columns, row, annotations)
        except csv.Error as error:
            raise DatasetError(f"line {rows.line_num}: {error}") from None


def _check_columns(columns: Sequence[str]) -> None:
    names = set(columns)
    has_shapes = names.issuperset(BOX_COLUMNS) or names.issuperset(POINT_COLUMNS)
    if "image" not in names or not has_shapes:
        raise DatasetError("expected the columns image and x0, y0, x1, y1 or x, y")
    twice = [name for name in columns if columns.count(name) > 1]
    if twice:
        raise DatasetError(f"the column {twice[0]} is there twice")


def _read_row(data: Dataset, columns: Sequence[str], values: Sequence[str], file: str) -> None:
    if len(values) != len(columns):
        raise DatasetError(f"expected {len(columns)} values, got {len(values)}")
    row = dict(zip(columns, values, strict=True))
    if not row["image"].strip():
        raise DatasetError("image is missing")
    used = _shape_columns(row)
    shape = [number(row[name], name) for name in used]
    image = data.image(data.paths.find(row["image"].strip(), file), {})
    if len(shape) == 4:
        shape = [*sorted_box(*shape)]
        data.check_pixels(image, shape)
    others = {"image", "label", *BOX_COLUMNS, *POINT_COLUMNS}
    fields: dict[str, Any] = {name: value for name, value in row.items() if name not in others}
    text_id = fields.get("id", "")
    if text_id.isascii() and text_id.isdecimal():
        fields["id"] = int(text_id)
    data.add(image, shape, data.category(row.get("label", "").strip() or NO_LABEL), fields)


def _shape_columns(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of a row's box, or of its point."""
    filled = []
    for columns in (BOX_COLUMNS, POINT_COLUMNS):
        values = [row.get(name, "") for name in columns]
        exist = row.keys() >= set(columns)
        if exist and any(value.strip() for value in values):
            filled.append(columns)
    if len(filled) != 1:
        raise DatasetError("expected either a box or a point")
    return filled[0]
