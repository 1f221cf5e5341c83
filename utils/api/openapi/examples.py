"""Example requests that run unchanged, and the responses with the official weights.

The image shows a disc in front of a hill and the sky. It is a PNG of 80 x 60 pixels, so that its base64 is short.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

import orjson

from utils.api.answers import multipart_pieces
from utils.api.info import VERSION
from utils.api.jobs import Segmentation

Examples = dict[str, dict[str, Any]]

FILE = (Path(__file__).parent / "example.png").read_bytes()
IMAGE_ID = hashlib.sha256(FILE).hexdigest()

EXAMPLE_IMAGE: dict[str, Any] = {"input_image": base64.b64encode(FILE).decode()}
"""The image of a request."""

CLICK: dict[str, Any] = {"pos_coords": [[40, 30]]}
"""A point on the disc."""
BOX: dict[str, Any] = {"box": [4, 18, 30, 44]}
"""A box around the hill."""
TEXT_ONLY: dict[str, Any] = {"mask_format": "rle", "segmented_image": "none"}
"""A short response without a picture."""

EXAMPLE: dict[str, Any] = {**EXAMPLE_IMAGE, **CLICK, **TEXT_ONLY}
"""A request that returns 200: the image and a click on the disc."""


def _named(summary: str, description: str, value: Any) -> dict[str, Any]:
    return {"summary": summary, "description": description, "value": value}


SEGMENT_REQUESTS: Examples = {
    "click": _named("One click", "Returns one mask as RLE, without a picture.", EXAMPLE),
    "box": _named(
        "A box and a negative click",
        "Returns the mask as nested lists of 0 and 1, and the object cut out of the image.",
        {**EXAMPLE_IMAGE, **BOX, "neg_coords": [[8, 24]], "mask_format": "json", "segmented_image": "cutout"},
    ),
    "refine": _named(
        "Further clicks on an image sent earlier",
        "Uses the `image_id` of an earlier response, which is faster. Send one of the other examples first.",
        {"image_id": IMAGE_ID, "pos_coords": [[40, 30], [48, 36]], "neg_coords": [[60, 50]], **TEXT_ONLY},
    ),
    "candidates": _named(
        "Three candidate masks for one object",
        "Returns whole, part and sub-part, each with a `low_res_mask` to send as `mask_input` with further clicks.",
        {**EXAMPLE_IMAGE, **CLICK, "multimask_output": True, "low_res_mask": True, **TEXT_ONLY},
    ),
    "objects": _named(
        "Several objects",
        "Returns one mask per entry of `prompts`, in the same order, as polygons.",
        {
            **EXAMPLE_IMAGE,
            "prompts": [CLICK, {"pos_coords": [[60, 10]]}, BOX],
            "mask_format": "polygon",
            "segmented_image": "none",
        },
    ),
}

EMBED_REQUESTS: Examples = {
    "image": _named("An image", "Later requests can use the returned `image_id` instead of the image.", EXAMPLE_IMAGE),
}

EVERYTHING_REQUESTS: Examples = {
    "grid": _named(
        "A grid of 8 x 8 points", "Small objects need a denser grid.", {**EXAMPLE_IMAGE, "points_per_side": 8}
    ),
    "progress": _named(
        "The same with progress",
        "Streams the response as JSON lines.",
        {**EXAMPLE_IMAGE, "points_per_side": 8, "progress": True},
    ),
}

WEIGHTS: dict[str, Any] = {
    "name": "official",
    "sha256": "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f",
    "trained": True,
    "note": "The official MobileSAM checkpoint, mobile_sam.pt.",
}
ENGINE: dict[str, Any] = {"encoder": "openvino bf16", "decoder": "openvino bf16"}
IMAGE: dict[str, Any] = {
    "image_id": IMAGE_ID,
    "width": 80,
    "height": 60,
    "weights": WEIGHTS,
    "engine": ENGINE,
    "model_version": 1,
}
RUN_LENGTHS: dict[str, Any] = {
    "size": [60, 80],
    "counts": "ba1:`14M3L3N2O0O2N2O0O2O000000000000000001N101N2N101N3L3N3LP`1",
}
MASK: dict[str, Any] = {"object": 0, "score": 0.9826, "area": 641, "box": [26, 17, 54, 45]}
RESULT: dict[str, Any] = {**IMAGE, "masks": [MASK]}
DOCUMENT: dict[str, Any] = {**IMAGE, "masks": [{**MASK, "rle": RUN_LENGTHS}]}
SKY = (
    "0Z1b0000000O1N2O1N2N2N2O1O1M3N2N2N2O1001O2N2N2N2N2N1OH8N2N2O1O100O1O1O1000000000000000000001O001O1O001O2YO\\O2e0L"
    "\\O4f0I[O7U1000000000000000000000000000000000000000000000000000"
)
DISC = "ba1:`14M2M4M2O0O2N2O0O2O000000000000000001N101N2N101N3L3N3LP`1"
GROUND = (
    "Z1b0Z100000000000000000000000000000000000000000000000000000000000001O1O001O000000000000000000O100O1O100000000000000"
    "0000000000000000000000000000000000000000000000000000000000000"
)
HILL = "_<3g12N2N2N2O1N2N2N2N2N2002N2N2N2N2N1O2N2N2N2NYP3"
DISC_AND_HILL = "_<3g12N2N2N2O1N2N2N2N2N2002N2N2N2N2N1O2N2NG9N2O0O3N100O2N2O0O2O000000000000000001N101N2N101N3L3N3LP`1"
EVERYTHING: dict[str, Any] = {
    **IMAGE,
    "masks": [
        {
            "segmentation": {"size": [60, 80], "counts": counts},
            "area": area,
            "bbox": bbox,
            "predicted_iou": predicted_iou,
            "point_coords": [point],
            "stability_score": stability_score,
            "crop_box": [0, 0, 80, 60],
        }
        for counts, area, bbox, predicted_iou, point, stability_score in (
            (SKY, 2458, [0, 0, 80, 42], 1.0167, [65.0, 26.25], 0.9859),
            (DISC, 640, [26, 17, 28, 28], 1.0134, [35.0, 18.75], 1.0),
            (GROUND, 1400, [0, 42, 80, 18], 1.0105, [75.0, 56.25], 0.9964),
            (HILL, 274, [6, 20, 22, 22], 0.9929, [25.0, 33.75], 0.9964),
            (DISC_AND_HILL, 919, [6, 17, 48, 28], 0.9313, [45.0, 41.25], 0.9913),
        )
    ],
}
INFO: dict[str, Any] = {
    "version": VERSION,
    "weights": WEIGHTS,
    "engine": ENGINE,
    "triton": "2.51.0",
    "key_needed": False,
    "limits": {"max_body_bytes": 33_554_432, "max_image_pixels": 25_000_000, "max_objects": 256},
    "model_versions": [1],
}
MODELS: dict[str, Any] = {
    "models": [
        {"name": "mobile_sam", "version": 1, "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "mobile_sam", "version": 2, "state": "READY", "reason": ""},
    ]
}

BOUNDARY = "87a9560fdf4120bebfb5cbb98cb06f78"
PICTURE = "(the bytes of a PNG file)"


_ANSWER = Segmentation(orjson.dumps(RUN_LENGTHS), PICTURE.encode(), orjson.dumps(RESULT))
MULTIPART = b"".join(map(bytes, multipart_pieces(_ANSWER, "rle", BOUNDARY))).decode()
"""Response of `/mobile_sam` with a placeholder for the picture."""
PROGRESS: list[dict[str, Any]] = [{"done": done, "total": 4} for done in range(4)] + [
    {"done": 4, "total": 4, "result": EVERYTHING}
]
LINES = "".join(f"{orjson.dumps(step).decode()}\n" for step in PROGRESS)
"""Stream of `/everything`."""

METRICS = """# HELP mobile_sam_answers_total Answers by path, status and reason: ok, or the problem's type
# TYPE mobile_sam_answers_total counter
mobile_sam_answers_total{path="/mobile_sam",reason="ok",status="200"} 20.0
"""
"""Excerpt of `/metrics`."""
