"""Hooks for Schemathesis: real images, small grids of clicks, and parsers for answers that are not JSON."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

from requests_toolbelt.multipart.decoder import MultipartDecoder

from tests.fuzz.body_parts import IMAGE

PROMPTS = ("pos_coords", "labels", "neg_coords", "box", "mask_input")
MAX_VALUES = {"points_per_side": 4, "crop_n_layers": 0}
"""Limits of fields that make requests slow."""


def valid_image(context: Any, case: Any, **kwargs: Any) -> None:
    """Put a real image and a small grid of clicks into most valid requests."""
    body = case.body
    mode = case.meta.generation.mode.value if case.meta else "positive"
    if mode != "positive" or not isinstance(body, dict):
        return
    if case.path == "/everything":
        for name, maximum in MAX_VALUES.items():
            body[name] = min(body.get(name, maximum), maximum)
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
    """Move an object's points and box into the image of two pixels, with as many labels as points."""
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
    """Parse a multipart answer into an object of its parts; only `result` has a schema."""
    decoder = MultipartDecoder(response.content, response.headers["content-type"][0])
    found: dict[str, Any] = {}
    for part in decoder.parts:
        name = re.search(rb'name="(\w+)"', part.headers[b"Content-Disposition"])
        assert name
        found[name[1].decode()] = part.content.decode("latin-1")
    return found | {"result": json.loads(found["result"])}


def lines(context: Any, response: Any) -> list[Any]:
    """Parse an answer of JSON lines into a list."""
    return [json.loads(line) for line in response.content.splitlines()]


def _register() -> None:
    schemathesis = importlib.import_module("schemathesis")
    schemathesis.hook("before_call")(valid_image)
    schemathesis.deserializer("multipart/form-data")(parts)
    schemathesis.deserializer("application/x-ndjson")(lines)


_register()
