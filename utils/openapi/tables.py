"""Schemas in the words of a table's cells, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from utils.openapi.schemas import Schema

Link = Callable[[str, str], str]
"""From a text and the name of a schema to a link."""


def type_of(schema: Schema, link: Link) -> str:
    """What a value is: `list of integers`, `string`, a link to an object."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return link(name, name)
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        # A field that may be left out may be null, which its default says.
        shown = [choice for choice in choices if choice != {"type": "null"} or "default" not in schema]
        return " or ".join(type_of(choice, link) for choice in shown)
    if schema["type"] == "array":
        return _list_of(schema, link)
    return str(schema["type"])


def _list_of(schema: Schema, link: Link) -> str:
    alike = schema.get("prefixItems", [schema.get("items")])
    item = type_of(alike[0], link)
    kind, of, rest = item.partition(" of ")
    items = item if item.startswith("[") else f"{kind}s{of}{rest}"
    count = _fixed(schema)
    return f"pair of {items}" if count == 2 else f"list of {count} {items}" if count else f"list of {items}"


def _fixed(schema: Schema) -> int:
    return int(schema.get("minItems", 0)) if schema.get("minItems") == schema.get("maxItems") else 0


def limits_of(schema: Schema) -> str:
    """What a value must keep to: `1 to 64`, `up to 256 items`; empty where there is nothing."""
    choices: list[Schema] = schema.get("anyOf", [schema])
    found = next(choice for choice in choices if choice != {"type": "null"})
    if "maxLength" in found:
        return f"up to {found['maxLength']} characters"
    if "maxItems" in found and not _fixed(found):
        least = found.get("minItems")
        return f"{least} to {found['maxItems']} items" if least else f"up to {found['maxItems']} items"
    if "exclusiveMinimum" in found:
        return f"more than {number(found['exclusiveMinimum'])}, up to {number(found['maximum'])}"
    if "minimum" in found:
        return f"{number(found['minimum'])} to {number(found['maximum'])}"
    return ""


def default_of(schema: Schema) -> str:
    """The default as JSON; empty where the value is required."""
    if "default" not in schema:
        return ""
    value = schema["default"]
    if isinstance(value, str):
        return f'`"{value}"`'
    return "" if value is None else f"`{number(value)}`"


def number(value: Any) -> str:
    """A number with up to four digits, thousands apart; other values as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown, and an empty line behind it."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
