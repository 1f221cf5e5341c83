"""Example requests that run unchanged, and the responses with the official weights.

The image shows a disc in front of a hill and the sky. It is a PNG of 80 x 60 pixels, so that its
base64 is short.
"""

import base64
from pathlib import Path
from typing import Any

import orjson

from utils.api.answers import multipart_pieces
from utils.api.info import VERSION
from utils.inference.segmenter import AnswerParts

Examples = dict[str, dict[str, Any]]

FILE = Path(__file__).with_name("example.png").read_bytes()
EXAMPLE_IMAGE: dict[str, Any] = {"input_image": base64.b64encode(FILE).decode()}
"""The image of a request."""
_DATA: dict[str, Any] = orjson.loads(Path(__file__).with_name("examples.json").read_bytes())
"""Requests, without the image, and the responses or their parts."""


def _with_image(example: dict[str, Any]) -> dict[str, Any]:
    value = example["value"]
    return {
        **example,
        "value": value if {"image_id", "image_ids"} & value.keys() else {**EXAMPLE_IMAGE, **value},
    }


REQUESTS: dict[str, Examples] = {
    operation: {name: _with_image(example) for name, example in examples.items()}
    for operation, examples in _DATA["requests"].items()
}
"""Example requests of each operation by name."""
EXAMPLE: dict[str, Any] = REQUESTS["mobile_sam"]["click"]["value"]
"""A request that returns 200: the image and a click on the disc."""

IMAGE: dict[str, Any] = _DATA["image"]
RUN_LENGTHS: dict[str, Any] = _DATA["rle"]
RESULT: dict[str, Any] = {**IMAGE, "masks": [_DATA["mask"]]}
DOCUMENT: dict[str, Any] = {**IMAGE, "masks": [{**_DATA["mask"], "rle": RUN_LENGTHS}]}
EVERYTHING: dict[str, Any] = {
    **IMAGE,
    "engine": _DATA["everything_engine"],
    "masks": _DATA["records"],
}
_IDENTITY = {name: IMAGE[name] for name in ("weights", "engine")}
INFO: dict[str, Any] = {
    **{"version": VERSION, **_IDENTITY, **_DATA["info"]},
    "loaded": [{"version": 1, **_IDENTITY, "descriptor": _DATA["descriptor"]}],
}
JOB: dict[str, Any] = _DATA["job"]
MODELS: dict[str, Any] = {"models": _DATA["models"]}

PICTURE = "(the bytes of a PNG file)"
_ANSWER = AnswerParts(orjson.dumps(RUN_LENGTHS), PICTURE.encode(), orjson.dumps(RESULT))
MULTIPART = b"".join(
    map(bytes, multipart_pieces(_ANSWER, "rle", "87a9560fdf4120bebfb5cbb98cb06f78"))
).decode()
"""Response of `/mobile_sam` with a placeholder for the picture."""
PROGRESS = [
    *({"done": done, "total": 4} for done in range(4)),
    {"done": 4, "total": 4, "result": EVERYTHING},
]
LINES = "".join(f"{orjson.dumps(step).decode()}\n" for step in PROGRESS)
"""Stream of `/everything`."""
METRICS = """\
# HELP mobile_sam_answers_total Answers by path, status and reason: ok, or the problem's \
type
# TYPE mobile_sam_answers_total counter
mobile_sam_answers_total{path="/mobile_sam",reason="ok",status="200"} 20.0
"""
"""Excerpt of `/metrics`."""
