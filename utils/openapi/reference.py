"""The reference in `docs/http.md`, made from the OpenAPI document: `python -m utils.openapi.reference docs/http.md`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from utils.openapi.calls import CALLS
from utils.openapi.document import document
from utils.openapi.photo import SAMPLE
from utils.openapi.problems import NO_KEY, NOT_CHANGED, REFUSALS, REJECTIONS, TOO_MUCH
from utils.openapi.schemas import Schema
from utils.openapi.tables import default_of, limits_of, table, type_of

INTRODUCTION = """# The HTTP API

<!-- Made by `make docs` from the OpenAPI document; changes here are overwritten. -->

Every operation of the service, as its OpenAPI document at `/docs.json` has it. The page at `/` shows the same, and
sends examples from a browser; `/ui` is a page to click on images. Fields of a request may be left out, but for those
that its description asks for.
"""

HEADERS = """\
Where the service has API keys ([security](security.md)), every `POST` needs one, as `Authorization: Bearer KEY` or
as `X-API-Key: KEY`. Paths below `/admin` need one of an operator, and are not there where there are none
([models](models.md)). An answer's `X-Request-ID` is what the service's log calls the request: the id that it came with
in a header of that name (1 to 128 of `A-Z a-z 0-9 . _ -`), or a new one.
"""

PICTURE = f"""\
The calls below run as they stand in the repository's folder, while `make serve` runs, on a picture that comes with it:

```sh
cp {SAMPLE} photo.jpg
```

They print what the official weights answer; another engine's answer differs in the last digits. Run lengths are cut
short, with …, and of the records of `/everything` only the first is shown.
"""

PROBLEMS = """## Problems

Every refusal is an RFC 9457 document of the type `application/problem+json`. A 429 or 503 says in `Retry-After` after
how many seconds to try again. A path that the service does not have is answered 404 `not-found`, a method that the path
does not have 405 `method-not-allowed`.
"""

INLINE = {
    "Segmentation": "POST /mobile_sam",
    "Image": "POST /embed",
    "Everything": "POST /everything",
    "Info": "GET /info",
    "Models": "GET /admin/models",
    "Problem": "Problems",
}
"""Schemas whose fields stand in a section of another name."""
WIDTH = 120
REQUESTS = ("SegmentRequest", "EmbedRequest", "EverythingRequest")


def reference() -> str:
    """The whole page, in Markdown."""
    whole = document(need_key=True, metrics_need_key=True, admin=True)
    schemas: dict[str, Schema] = whole["components"]["schemas"]
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in whole["paths"].items()
        for method, operation in methods.items()
    }
    contents = ((_link(f"`{name}`", name), operation["summary"]) for name, operation in operations.items())
    objects = (name for name in schemas if name not in {*INLINE, *REQUESTS, "FieldError"})
    sections = [
        INTRODUCTION,
        table(("operation", "what it does"), contents),
        HEADERS,
        PICTURE,
        *(_operation(name, operation, schemas) for name, operation in operations.items()),
        _problems(schemas),
        "## Objects\n",
        *(_object(name, schemas) for name in objects),
    ]
    return "\n".join(sections).rstrip() + "\n"


def _operation(name: str, operation: dict[str, Any], schemas: dict[str, Schema]) -> str:
    """The section on one operation."""
    parts = [f"## {name}\n", textwrap.fill(f"{operation['summary']}. {operation['description']}", WIDTH) + "\n"]
    if "requestBody" in operation:
        ((media, content),) = operation["requestBody"]["content"].items()
        parts += [f"The request, `{media}`:\n", _asked(_resolved(content["schema"], schemas))]
    parts += [f"{call.markdown()}\n" for call in CALLS.get(operation["operationId"], ())]
    answers = dict(operation["responses"])
    success = answers.pop("200")
    parts += [
        _success(media, success["description"], content, schemas) for media, content in success["content"].items()
    ]
    problems = (
        (status, ", ".join(_link(f"`{slug}`", "Problems") for slug in answer["content"][_only(answer)]["examples"]))
        for status, answer in answers.items()
    )
    return "\n".join([*parts, table(("status", "problems"), problems)] if answers else parts)


def _success(media: str, description: str, content: dict[str, Any], schemas: dict[str, Schema]) -> str:
    """What a 200 of one content type holds."""
    schema = _resolved(content["schema"], schemas)
    begun = f"The answer, `{media}`: "
    if "encoding" in content:
        return f"{begun}{description}.\n\n{_parts(schema, content['encoding'])}"
    if schema["type"] == "array":
        return f"{begun}{schema['description']}, {type_of(schema['items'], _link)}.\n"
    if schema["type"] == "object":
        return f"{begun}{description}.\n\n{_answered(schema, schemas)}"
    return f"{begun}{description}.\n"


def _asked(schema: Schema) -> str:
    rows = (
        (f"`{name}`", type_of(field, _link), limits_of(field), default_of(field), field["description"])
        for name, field in schema["properties"].items()
    )
    return table(("field", "type", "limits", "default", "meaning"), rows)


def _answered(schema: Schema, schemas: dict[str, Schema]) -> str:
    rows = (
        (
            f"`{name}`" + ("" if name in schema["required"] else " (not always)"),
            type_of(field, _link),
            _resolved(field, schemas)["description"],
        )
        for name, field in schema["properties"].items()
    )
    return table(("field", "type", "meaning"), rows)


def _parts(schema: Schema, encoding: dict[str, Any]) -> str:
    rows = (
        (
            f"`{name}`",
            ", ".join(f"`{kind}`" for kind in encoding[name]["contentType"].split(", ")),
            part.get("description") or type_of(part, _link),
        )
        for name, part in schema["properties"].items()
    )
    return table(("part", "content type", "meaning"), rows)


def _problems(schemas: dict[str, Schema]) -> str:
    """The section on all problems."""
    problems = sorted((*NO_KEY, *NOT_CHANGED, *REFUSALS, *REJECTIONS, *TOO_MUCH), key=lambda problem: problem.status)
    rows = ((f"`{each.slug}`", str(each.status), each.title, each.detail) for each in problems)
    return "\n".join(
        [
            PROBLEMS,
            _answered(schemas["Problem"], schemas),
            _object("FieldError", schemas),
            "### Names of problems\n",
            table(("name", "status", "title", "a detail, for example"), rows),
        ]
    )


def _object(name: str, schemas: dict[str, Schema]) -> str:
    """The section on an object that others refer to."""
    schema = schemas[name]
    fields = _answered(schema, schemas) if "required" in schema else _asked(schema)
    return f"### {name}\n\n{schema['description'].removesuffix('.')}.\n\n{fields}"


def _resolved(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def _only(answer: dict[str, Any]) -> str:
    (media,) = answer["content"]
    return str(media)


def _link(text: str, name: str) -> str:
    """A link to a section or an object of the page."""
    heading = INLINE.get(name, name).lower()
    anchor = "".join(char for char in heading if char.isalnum() or char in "_- ").replace(" ", "-")
    return f"[{text}](#{anchor})"


def main(arguments: list[str]) -> None:
    """Write the page into the file named on the command line."""
    (file,) = arguments
    Path(file).write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
