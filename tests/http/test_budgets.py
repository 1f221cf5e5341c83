"""The budgets in docs/security.md agree with the OpenAPI document, the settings and the tests."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from utils.api.openapi import document
from utils.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = document()["components"]["schemas"]
PATHS = {"SegmentRequest": "/mobile_sam", "ObjectFields": "/mobile_sam", "EverythingRequest": "/everything"}
LIMITS = ("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxItems", "maxLength")
UNITS = {"MiB": 2**20, "GiB": 2**30}
TRITON_DEFAULTS = {f"{PREFIX}MAX_IMAGE_PIXELS": 25_000_000, f"{PREFIX}EMBEDDING_CACHE_BYTES": 2 * 2**30}


@dataclass(frozen=True)
class Row:
    """A row of the table of budgets."""

    subject: str
    limit: str
    setting: str
    effect: str
    test: str

    def numbers(self) -> set[float]:
        """Return all numbers of the limit."""
        return {float(number.replace(",", "")) for number in re.findall(r"-?[\d,]*\d", self.limit)}


def rows() -> list[Row]:
    page = (ROOT / "docs" / "security.md").read_text()
    table = page.partition("## Budgets")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in re.sub(r"\| +\|", "|  |", table).splitlines() if line[:1] == "|"]
    return [Row(*(cell.strip() for cell in line)) for line in cells[2:]]


@dataclass(frozen=True)
class Bound:
    """A bound of a field in the OpenAPI document."""

    schema: str
    field: str
    kind: str
    number: float
    depth: int
    """Nesting depth in lists."""


def bounds_of(schema: str, field: str, description: dict[str, Any], depth: int = 0) -> list[Bound]:
    """Return all bounds of a field's value and of nested values."""
    found = [Bound(schema, field, kind, description[kind], depth) for kind in LIMITS if kind in description]
    for inner in description.get("anyOf", []):
        found += bounds_of(schema, field, inner, depth)
    for inner in [*description.get("prefixItems", []), *([description["items"]] if "items" in description else [])]:
        found += bounds_of(schema, field, inner, depth + 1)
    return found


BOUNDS = sorted(
    {
        bound
        for schema in PATHS
        for field, description in SCHEMAS[schema]["properties"].items()
        for bound in bounds_of(schema, field, description)
        if bound.kind != "maxItems" or (field != "box" and not bound.depth)  # not the fixed lengths of pairs and boxes
    },
    key=repr,
)
ROWS = rows()
each_bound = pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: f"{bound.schema} {bound.field} {bound.kind}")


def beyond(bound: Bound) -> Any:
    """Return a value just beyond a bound, nested as its field requires."""
    if bound.kind == "maxItems":
        item: Any = {"prompts": {"pos_coords": [[1, 1]]}, "labels": 1}.get(bound.field, [1, 1])
        return [item] * (int(bound.number) + 1)
    if bound.kind == "maxLength":
        return "0" * (int(bound.number) + 1)
    value = bound.number
    if not bound.kind.startswith("exclusive"):
        sign = -1 if bound.kind == "minimum" else 1
        value = value + sign if isinstance(value, int) else math.nextafter(value, sign * math.inf)
    return {"box": [value, 0, 5, 5], "labels": [value]}.get(bound.field, [[value, 1]] if bound.depth else value)


def test_table_and_document_were_parsed():
    assert len(ROWS) > 40
    assert len(BOUNDS) > 25


@each_bound
def test_every_bound_of_the_document_is_in_the_table(bound):
    matching = [row for row in ROWS if f"`{bound.field}`" in row.subject]
    assert any(bound.number in row.numbers() for row in matching), bound


@each_bound
def test_value_beyond_a_bound_is_refused(http, segmenter, bound):
    point = {} if bound.schema == "EverythingRequest" or bound.field == "prompts" else {"pos_coords": [[1, 1]]}
    fields = {**point, bound.field: beyond(bound)}
    answer = http.post(
        PATHS[bound.schema],
        json={"image_id": "0" * 64, **({"prompts": [fields]} if bound.schema == "ObjectFields" else fields)},
    )
    assert answer.status_code == 422
    assert bound.field in answer.json()["errors"][0]["field"]
    assert segmenter.calls == []


@pytest.mark.parametrize("row", [row for row in ROWS if row.setting], ids=lambda row: row.subject)
def test_configurable_limit_is_the_settings_default(row):
    name = row.setting.strip("`")
    default = getattr(Settings(), name.removeprefix(PREFIX).lower())
    if default is None:  # from config.pbtxt, or no default
        default = TRITON_DEFAULTS.get(name)
    number, _, unit = row.limit.partition(" ")
    factor = next((factor for name, factor in UNITS.items() if unit.startswith(name)), 1)
    assert row.limit == "as set" if default is None else int(number.strip(",").replace(",", "")) * factor == default


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.subject)
def test_budget_names_an_existing_test(row):
    name, _, file = row.test.removeprefix("[").removesuffix(")").partition("](../")
    assert f"def {name}(" in (ROOT / file).read_text()
