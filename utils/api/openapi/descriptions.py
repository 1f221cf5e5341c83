"""Types, limits and defaults of schemas as texts for `docs/http.md`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from utils.api.openapi.schemas import Schema

Link = Callable[[str, str], str]
"""Returns a link for a text and the name of a schema."""


def type_of(schema: Schema, link: Link) -> str:
    """Return the type of a value, such as `list of integers`, `string` or a link to an object."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return link(name, name)
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        # Optional fields accept null as well; their default says so.
        shown = [choice for choice in choices if choice != {"type": "null"} or "default" not in schema]
        return " or ".join(type_of(choice, link) for choice in shown)
    if schema["type"] == "array":
        return _list_of(schema, link)
    return " or ".join(schema["type"]) if isinstance(schema["type"], list) else str(schema["type"])


def _list_of(schema: Schema, link: Link) -> str:
    item_schemas = schema.get("prefixItems", [schema.get("items")])
    item = type_of(item_schemas[0], link)
    kind, of, rest = item.partition(" of ")
    items = item if item.startswith("[") else f"{kind}s{of}{rest}"
    count = _fixed(schema)
    return f"pair of {items}" if count == 2 else f"list of {count} {items}" if count else f"list of {items}"


def _fixed(schema: Schema) -> int:
    return int(schema.get("minItems", 0)) if schema.get("minItems") == schema.get("maxItems") else 0


def limits_of(schema: Schema) -> str:
    """Return the limits of a value, such as `1 to 64` or `up to 256 items`; empty without limits."""
    choices: list[Schema] = schema.get("anyOf", [schema])
    found = next(choice for choice in choices if choice != {"type": "null"})
    if "maxLength" in found:
        return f"up to {found['maxLength']} characters"
    if "maxItems" in found and not _fixed(found):
        minimum = found.get("minItems")
        return f"{minimum} to {found['maxItems']} items" if minimum else f"up to {found['maxItems']} items"
    if "exclusiveMinimum" in found:
        return f"more than {number(found['exclusiveMinimum'])}, up to {number(found['maximum'])}"
    if "minimum" in found:
        return f"{number(found['minimum'])} to {number(found['maximum'])}"
    return ""


def default_of(schema: Schema) -> str:
    """Return the default as JSON; empty if the value is required or the default is null."""
    if "default" not in schema:
        return ""
    value = schema["default"]
    if isinstance(value, str):
        return f'`"{value}"`'
    return "" if value is None else f"`{number(value)}`"


def number(value: Any) -> str:
    """Format a number with thousands separators or up to four digits, and a boolean as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
