"""What Schemathesis cannot know: what an image is, that many clicks take long, how to read answers that are no JSON."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

from requests_toolbelt.multipart.decoder import MultipartDecoder

from tests.fuzz.body_parts import IMAGE

PROMPTS = ("pos_coords", "labels", "neg_coords", "box", "mask_input")
QUICK = {"points_per_side": 4, "crop_n_layers": 0}
"""Most that these fields may be."""


def valid_image(context: Any, case: Any, **kwargs: Any) -> None:
    """Give most requests that fit the document a real image, and a grid of few clicks."""
    body = case.body
    mode = case.meta.generation.mode.value if case.meta else "positive"
    if mode != "positive" or not isinstance(body, dict):
        return
    if case.path == "/everything":
        for name, most in QUICK.items():
            body[name] = min(body.get(name, most), most)
    if len(str(body)) % 4 == 0:
        return
    body.pop("image_id", None)
    body["input_image"] = IMAGE
    if case.path == "/mobile_sam":
        if body.get("prompts"):
            for name in PROMPTS:
                body.pop(name, None)
        for fields in body.get("prompts") or [body]:
            put_on_image(fields)


def put_on_image(fields: dict[str, Any]) -> None:
    """Make an object one that the image of two pixels can have: points on it, as many labels, a box around it all."""
    for name in ("pos_coords", "neg_coords"):
        if fields.get(name):
            fields[name] = [[x % 2, y % 1] for x, y in fields[name]]
    if not fields.get("pos_coords"):
        fields["pos_coords"] = [[1, 0.5]]
    if fields.get("labels") is not None:
        fields["labels"] = [1] * len(fields["pos_coords"])
    if fields.get("box"):
        fields["box"] = [0, 0, 2, 1]
    fields.pop("mask_input", None)


def parts(context: Any, response: Any) -> dict[str, Any]:
    """A multipart answer as an object of its parts, of which `result` alone has a schema."""
    decoder = MultipartDecoder(response.content, response.headers["content-type"][0])
    found: dict[str, Any] = {}
    for part in decoder.parts:
        name = re.search(rb'name="(\w+)"', part.headers[b"Content-Disposition"])
        assert name
        found[name[1].decode()] = part.content.decode("latin-1")
    return found | {"result": json.loads(found["result"])}


def lines(context: Any, response: Any) -> list[Any]:
    """An answer that comes line by line as a list of its documents."""
    return [json.loads(line) for line in response.content.splitlines()]


def _register() -> None:
    schemathesis = importlib.import_module("schemathesis")
    schemathesis.hook("before_call")(valid_image)
    schemathesis.deserializer("multipart/form-data")(parts)
    schemathesis.deserializer("application/x-ndjson")(lines)


_register()
