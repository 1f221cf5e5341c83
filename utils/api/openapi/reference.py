"""Generator of `docs/http.md`: `python -m utils.api.openapi.reference docs/http.md`.

`reference.md` beside this file has the text and the example calls; fields, responses and problems come from the OpenAPI
document.
"""

import sys
import textwrap
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from utils.api.errors import MEDIA_TYPE
from utils.api.openapi.document import document
from utils.api.openapi.problems import (
    IMAGE_PROBLEMS,
    MASK_PROBLEMS,
    MODEL_CHANGE,
    NOT_ACCEPTABLE,
    SERVICE_PROBLEMS,
    UNAUTHORIZED,
)
from utils.api.openapi.schemas import Schema
from utils.api.received import JSON

TEMPLATE = Path(__file__).with_suffix(".md")
INLINE = {
    "SegmentRequest": "POST /mobile_sam",
    "EmbedRequest": "POST /embed",
    "EverythingRequest": "POST /everything",
    "Segmentation": "POST /mobile_sam",
    "Document": "POST /mobile_sam",
    "Image": "POST /embed",
    "Everything": "POST /everything",
    "Info": "GET /info",
    "Problem": "Problems",
}
"""Schemas that are documented in a section with another name."""
BASES = {
    "EmbedRequest": "SegmentRequest",
    "EverythingRequest": "SegmentRequest",
    "ObjectFields": "SegmentRequest",
    "Document": "Image",
    "Result": "Image",
    "Everything": "Image",
    "MaskWithContent": "Mask",
}
"""Schemas that share fields with another one, which describes these."""
IMAGE_SLUGS = {each.slug for each in (*UNAUTHORIZED, *SERVICE_PROBLEMS, *IMAGE_PROBLEMS)}
"""Problems of every operation that takes an image."""
OTHER_PROBLEMS = ((404, "`not-found`"), (405, "`method-not-allowed`"))
"""Problems that belong to no operation."""
NULL = {"type": "null"}


def reference() -> str:
    """Return the page in Markdown."""
    api = document(need_key=True, metrics_need_key=True, admin=True)
    schemas: dict[str, Schema] = api["components"]["schemas"]
    page, others = TEMPLATE.read_text(encoding="utf-8"), []
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            before, heading, section = page.partition(f"## {name}\n")
            if heading:
                section = section.replace("<<request>>", _request(operation, schemas), 1)
                page = before + heading + section.replace("<<responses>>", _responses(operation, schemas), 1)
            else:
                others.append(_item(name, operation))
    objects = [f"### {name}\n\n{_response_fields(name, schemas)}" for name in schemas if name not in INLINE]
    problems = f"{_response_fields('Problem', schemas)}\nBy status:\n\n{_problems_by_status()}"
    for marker, text in (("others", "".join(others)), ("problems", problems), ("objects", "\n".join(objects))):
        page = page.replace(f"<<{marker}>>", text.rstrip())
    return page


def _request(operation: dict[str, Any], schemas: dict[str, Schema]) -> str:
    """Return the description of an operation and the fields of its request."""
    text = textwrap.fill(f"{operation['summary']}. {operation['description']}", 120)
    if "requestBody" not in operation:
        return text
    name = _name(operation["requestBody"]["content"][JSON]["schema"])
    inherited, fields = _split(name, schemas)
    lines = [f"- `{name}`: {_value(field)}; {field['description']}\n" for name, field in fields.items()]
    return f"{text}\n\nRequest:\n\n{inherited}{''.join(lines)}".rstrip()


def _responses(operation: dict[str, Any], schemas: dict[str, Schema]) -> str:
    """Return the 200 responses and the problems of an operation."""
    success = operation["responses"]["200"]
    parts = [_success(media, success["description"], content, schemas) for media, content in success["content"].items()]
    if problems := _problem_names(operation):
        parts.append(f"[Problems](#problems): {problems}.\n")
    return "\n".join(parts).rstrip()


def _item(name: str, operation: dict[str, Any]) -> str:
    """Return the line of an operation without a section."""
    (content,) = operation["responses"]["200"]["content"].values()
    text = operation["responses"]["200"]["description"]
    response = _type_of(content["schema"]) if "$ref" in content["schema"] else text
    problems = _problem_names(operation)
    ending = f"; problems {problems}" if problems else ""
    return f"- `{name}`: {operation['summary']}. {operation['description']} Response: {response}{ending}\n"


def _problem_names(operation: dict[str, Any]) -> str:
    """Return the problems of an operation; it abbreviates the ones of all operations with an image."""
    errors = [error for status, error in operation["responses"].items() if status != "200"]
    slugs = {slug for error in errors for slug in error["content"][MEDIA_TYPE]["examples"]}
    problems = ["those marked with \\*"] if slugs >= IMAGE_SLUGS else []
    problems += [f"`{slug}`" for slug in sorted(slugs - IMAGE_SLUGS if problems else slugs)]
    return ", ".join(problems)


def _success(media: str, description: str, content: dict[str, Any], schemas: dict[str, Schema]) -> str:
    """Return the description of a 200 response with one media type."""
    schema = _resolved(content["schema"], schemas)
    text = schema.get("description", description)
    line = f"Response (`{media}`): {text[0].lower()}{text[1:]}"
    if "encoding" in content:
        parts = [
            f"- `{name}` ({content['encoding'][name]['contentType']}): {part.get('description') or _type_of(part)}\n"
            for name, part in schema["properties"].items()
        ]
        return f"{line}.\n\n{''.join(parts)}"
    if schema["type"] == "array":
        return f"{line}, {_type_of(schema['items'])}.\n"
    fields = _response_fields(_name(content["schema"]), schemas) if schema["type"] == "object" else ""
    return f"{line}.\n\n{fields}".rstrip() + "\n"


def _response_fields(name: str, schemas: dict[str, Schema]) -> str:
    inherited, fields = _split(name, schemas)
    required = schemas[name].get("required", fields)
    return inherited + "".join(
        f"- `{name}`{'' if name in required else ' (optional)'}: {_type_of(field)}"
        + ("\n" if "$ref" in field else f"; {_resolved(field, schemas)['description']}\n")
        for name, field in fields.items()
    )


def _split(name: str, schemas: dict[str, Schema]) -> tuple[str, dict[str, Schema]]:
    """Return a line about the fields that a schema has in common with its base, and its other fields."""
    fields: dict[str, Schema] = schemas[name]["properties"]
    if name not in BASES:
        return "", fields
    base = schemas[BASES[name]]["properties"]
    common = [f"`{field}`" for field in fields if base.get(field) == fields[field]]
    names = "the fields" if len(common) == len(base) else ", ".join(common)
    line = f"- {names} of {_link(INLINE.get(BASES[name], BASES[name]), BASES[name])}\n"
    return line, {field: schema for field, schema in fields.items() if base.get(field) != schema}


def _problems_by_status() -> str:
    problems = (*UNAUTHORIZED, *MODEL_CHANGE, NOT_ACCEPTABLE, *SERVICE_PROBLEMS, *IMAGE_PROBLEMS, *MASK_PROBLEMS)
    found = [(each.status, f"`{each.slug}`" + "\\*" * (each.slug in IMAGE_SLUGS)) for each in problems]
    groups = groupby(sorted({*found, *OTHER_PROBLEMS}), key=itemgetter(0))
    return "".join(f"- {status}: {', '.join(name for _, name in group)}\n" for status, group in groups)


def _resolved(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    return schemas[_name(schema)] if "$ref" in schema else schema


def _name(schema: Schema) -> str:
    """Return the name of a referenced schema."""
    return str(schema["$ref"].rpartition("/")[2])


def _link(text: str, name: str) -> str:
    """Return a link to a section or an object of the page."""
    heading = INLINE.get(name, name).lower()
    anchor = "".join(char for char in heading if char.isalnum() or char in "_- ").replace(" ", "-")
    return f"[{text}](#{anchor})"


def _value(field: Schema) -> str:
    """Return type, limits and default of a field of a request."""
    default = _default_of(field)
    return ", ".join(filter(None, (_type_of(field), _limits_of(field), default and f"default {default}")))


def _type_of(schema: Schema) -> str:
    """Return the type of a value, such as `list of integers`, `string` or a link to an object."""
    if "$ref" in schema:
        return _link(_name(schema), _name(schema))
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        # Optional fields accept null as well; their default says so.
        return " or ".join(_type_of(choice) for choice in choices if choice != NULL or "default" not in schema)
    if schema["type"] == "array":
        item = _type_of(schema.get("prefixItems", [schema.get("items")])[0])
        kind, of, rest = item.partition(" of ")
        items = item if item.startswith("[") else f"{kind}s{of}{rest}"
        count = _fixed_length(schema)
        return f"pair of {items}" if count == 2 else f"list of {f'{count} ' if count else ''}{items}"
    return " or ".join(schema["type"]) if isinstance(schema["type"], list) else str(schema["type"])


def _limits_of(schema: Schema) -> str:
    """Return the limits of a value, such as `1 to 64` or `up to 256 items`; empty without limits."""
    found: Schema = next(choice for choice in schema.get("anyOf", [schema]) if choice != NULL)
    if "maxLength" in found:
        return f"up to {found['maxLength']} characters"
    if "maxItems" in found and not _fixed_length(found):
        minimum = found.get("minItems")
        return f"{minimum} to {found['maxItems']} items" if minimum else f"up to {found['maxItems']} items"
    if "exclusiveMinimum" in found:
        return f"more than {_number(found['exclusiveMinimum'])}, up to {_number(found['maximum'])}"
    return f"{_number(found['minimum'])} to {_number(found['maximum'])}" if "minimum" in found else ""


def _fixed_length(schema: Schema) -> int:
    return int(schema.get("minItems", 0)) if schema.get("minItems") == schema.get("maxItems") else 0


def _default_of(schema: Schema) -> str:
    """Return the default as JSON; empty if the value is required or the default is null."""
    value = schema.get("default")
    if isinstance(value, str):
        return f'`"{value}"`'
    return "" if value is None else f"`{_number(value)}`"


def _number(value: Any) -> str:
    """Format a number with thousands separators or up to four digits, and a boolean as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
