"""The budgets in docs/security.md and the limits in docs/http.md agree with the code, the settings and the tests."""

import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from utils.api.openapi import document
from utils.edge.middleware import Edge
from utils.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = document()["components"]["schemas"]
PATHS = {"SegmentRequest": "/mobile_sam", "ObjectFields": "/mobile_sam", "EverythingRequest": "/everything"}
LIMITS = {
    "maximum": "to {}(?! items| char)",
    "minimum": "{} to",
    "exclusiveMinimum": "more than {}",
    "maxItems": "to {} items",
    "maxLength": "to {} characters",
}
"""Words for each kind of bound."""
UNITS = {"MiB": 2**20, "GiB": 2**30}
TRITON_DEFAULTS = {f"{PREFIX}MAX_IMAGE_PIXELS": 25_000_000, f"{PREFIX}EMBEDDING_CACHE_BYTES": 2 * 2**30}


class Row(NamedTuple):
    """A budget on the page; `setting` is empty without one."""

    subject: str
    setting: str
    limit: str
    file: str
    test: str


def rows() -> list[Row]:
    page = (ROOT / "docs" / "security.md").read_text()
    budgets = page.partition("## Budgets")[2].partition("\n## ")[0]
    pattern = r"^- (.+?)(?:, `(MOBILE_SAM_\w+)`)?: \[(.+)\]\(\.\./(.+)#(\w+)\)(?:, else .+)?$"
    cells = re.findall(pattern, budgets, re.MULTILINE)
    assert len(cells) == budgets.count("\n- ")
    return [Row(*cell) for cell in cells]


def field_texts() -> dict[str, list[str]]:
    """Return the descriptions of each field in docs/http.md."""
    found: dict[str, list[str]] = {}
    for name, text in re.findall(r"^- `(\w+)`: (.+)$", (ROOT / "docs" / "http.md").read_text(), re.MULTILINE):
        found.setdefault(name, []).append(text)
    return found


class Bound(NamedTuple):
    """A bound of a field, or of the values in its lists, in the OpenAPI document."""

    schema: str
    field: str
    kind: str
    number: float
    depth: int


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
ROWS, FIELD_TEXTS = rows(), field_texts()
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


def test_page_and_document_were_parsed():
    assert len(ROWS) >= 40
    assert len(BOUNDS) > 25


@each_bound
def test_every_bound_of_the_document_is_on_a_page(bound):
    texts = [row.limit for row in ROWS if f"`{bound.field}`" in row.subject] + FIELD_TEXTS[bound.field]
    words = LIMITS[bound.kind].format(re.escape(f"{bound.number:,.10g}"))
    assert any(re.search(rf"(?<![\w,.-]){words}(?!,?\w)", text) for text in texts), texts


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
    default = getattr(Settings(), row.setting.removeprefix(PREFIX).lower())
    if default is None:  # from config.pbtxt, or no default
        default = TRITON_DEFAULTS.get(row.setting)
    number, _, unit = row.limit.partition(" ")
    factor = next((factor for name, factor in UNITS.items() if unit.startswith(name)), 1)
    assert row.limit == "as set" if default is None else int(number.strip(",").replace(",", "")) * factor == default


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.subject)
def test_budget_names_an_existing_test(row):
    assert f"def {row.test}(" in (ROOT / row.file).read_text()


def test_costly_conversions_for_tools_notice_callers_of_other_paths(service, http):
    ((_, options),) = [entry for entry in service.svc.middlewares if entry[0] is Edge]
    active = options["adapters"]._service._active
    active._last_request.clear()  # callers of other tests
    http.post("/mobile_sam", json={})
    assert active.has_others("198.51.100.1")
