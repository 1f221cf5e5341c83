"""Hooks for Schemathesis: real images, small grids of clicks, and parsers for answers that are
not JSON.
"""

import base64
import importlib
import json
import re
from typing import Any

from requests_toolbelt.multipart.decoder import MultipartDecoder

from tests.fuzz.hostile_requests import IMAGES

IMAGE = base64.b64encode(IMAGES[0]).decode()
PROMPTS: tuple[dict[str, Any], ...] = (
    {"pos_coords": [[1, 0.5], [40, 50]], "labels": [1, 0]},
    {"box": [0, 0, 64, 64], "neg_coords": [[3, 3]]},
    {"prompts": [{"pos_coords": [[1, 1]]}, {"box": [0, 0, 9, 9]}]},
)
"""Prompts on the image, which has 64 x 64 pixels."""
REPLACED = ("image_id", "pos_coords", "labels", "neg_coords", "box", "mask_input", "prompts")
MAX_VALUES = {"points_per_side": 4, "crop_n_layers": 0}
"""Limits of fields that make requests slow."""


def valid_image(context: Any, case: Any, **kwargs: Any) -> None:
    """Put a real image with prompts and a small grid of clicks into most valid requests."""
    body = case.body
    if case.meta and case.meta.generation.mode.value != "positive":
        return
    case.headers.pop("X-Image-Id", None)  # a valid one that names another image
    if case.media_type == "application/octet-stream":
        case.body, case.query = (
            IMAGES[0],
            {"points_per_side": 4} if case.path == "/everything" else {},
        )
    if case.media_type != "application/json" or not isinstance(body, dict):
        return
    if case.path == "/everything":
        body |= {
            name: min(body.get(name, maximum), maximum) for name, maximum in MAX_VALUES.items()
        }
    size = len(str(body))
    if size % 4:
        for name in REPLACED:
            body.pop(name, None)
        body |= {"input_image": IMAGE} | (PROMPTS[size % 3] if case.path == "/mobile_sam" else {})


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
