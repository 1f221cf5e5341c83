"""Functions for CVAT's server, which asks for them as it asks Nuclio's dashboard.

CVAT shows a person the status of a failed invocation and nothing of its body; the reason is in the
service's log.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import cv2
import numpy as np
import orjson
import pybase64
from pydantic import Field
from safetensors.numpy import load

from orchestrator.cache import MOBILE_SAM_SHAPES
from utils.api.answers import json_response
from utils.api.requests import MAX_POINTS, Point
from utils.errors import UnknownPath, invalid
from utils.inference.everything import Fraction
from utils.integrations.adapter import Adapter, Answer, ImageText, ToolCall, ToolRequest, image_of
from utils.integrations.rasters import OUTLINE_NS, Record, cropped, outlines_of, run_lengths
from utils.integrations.service import GRID, as_json, pixels_per_cell
from utils.observability.logs import quoted

INTERACTOR, DETECTOR = "mobile-sam", "mobile-sam-everything"
IN_BROWSER = "pth-facebookresearch-sam-vit-h"
"""The function whose answers CVAT's user interface decodes itself, by this id."""
LABEL = "object"
"""The detector's only label, which a person maps to one of the task's."""
FUNCTION_NAME = "x-nuclio-function-name"
JSON_NS = 6.0
"""One pixel of a mask's box as a number in JSON."""
NUMBER_BYTES, DIGIT_BYTES = 4, 2
"""The same in bytes, with its comma: up to 255, and 0 or 1."""


CLICKS = {
    "type": "interactor",
    "version": "2",  # of CVAT's interface
    "spec": "",
    "min_neg_points": "0",
    "help_message": "Click on an object; a right click excludes a part",
}
DESCRIPTIONS = {
    INTERACTOR: (
        "Masks of objects from points and boxes",
        {
            **CLICKS,
            "name": "MobileSAM",
            "min_pos_points": "0",
            "startswith_box_optional": "true",
            "help_message": (
                "Click on an object, or draw a box around it; a right click excludes a part"
            ),
        },
    ),
    DETECTOR: (
        "Masks of all objects in an image, without classes",
        {
            "name": "MobileSAM, everything",
            "type": "detector",
            "spec": orjson.dumps([{"id": 0, "name": LABEL, "type": "mask"}]).decode(),
        },
    ),
    IN_BROWSER: (
        "Masks of objects from points, decoded in the browser",
        {**CLICKS, "name": "MobileSAM, in the browser", "min_pos_points": "1"},
    ),
}
"""Description and annotations of each function, by its id."""
FUNCTIONS: dict[str, dict[str, Any]] = {
    name: {
        "metadata": {"name": name, "namespace": "nuclio", "annotations": annotations},
        "spec": {"description": description},
        "status": {"state": "ready"},
    }
    for name, (description, annotations) in DESCRIPTIONS.items()
}
"""Functions as Nuclio describes them, by id."""


async def described(call: ToolCall, name: str = "") -> Any:
    """Return a function, without a name all; raise `UnknownPath` if there is none or it is off."""
    is_on = call.service.settings.cvat_in_browser
    functions = dict(FUNCTIONS)
    if not is_on:
        del functions[IN_BROWSER]
    if name and name not in functions:
        raise UnknownPath(f"expected the function {' or '.join(functions)}", got=quoted(name, 100))
    return functions[name] if name else functions


class Invocation(ToolRequest):
    """An invocation of a function: of the interactor with points or a box, of the detector with
    a threshold.
    """

    image: ImageText
    pos_points: Annotated[list[Point] | None, Field(max_length=MAX_POINTS)] = None
    neg_points: Annotated[list[Point] | None, Field(max_length=MAX_POINTS)] = None
    obj_bbox: list[Point] | None = None
    threshold: Fraction | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`; raise `InvalidRequest` if the box has not two
        corners.
        """
        fields: dict[str, Any] = {
            "pos_coords": self.pos_points or [],
            "neg_coords": self.neg_points or [],
        }
        if self.obj_bbox:
            if len(self.obj_bbox) != 2:
                raise invalid("obj_bbox", "two corners of one box", f"{len(self.obj_bbox)} points")
            (x0, y0), (x1, y1) = self.obj_bbox
            fields["box"] = [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]
        return fields


async def invoke(call: ToolCall, request: Invocation) -> Answer:
    """Run the function that a header names."""
    name = call.headers.get(FUNCTION_NAME) or "none"
    await described(call, name)
    return await {INTERACTOR: interact, DETECTOR: detect, IN_BROWSER: embed}[name](call, request)


async def interact(call: ToolCall, request: Invocation) -> Answer:
    """Return the mask of a click, for servers of 2024 and 2025 as `mask` in `bounds`, for newer
    ones as `shapes`.
    """
    fields = {**request.fields(), "mask_format": "rle"}
    document = await call.service.segment(image_of(request.image, "image"), fields)
    (mask,) = document["masks"]
    call.service.check_boxes(document, NUMBER_BYTES)

    def answer() -> bytes:
        crop, bounds = cropped(mask)
        shape = {"type": "mask", "points": [*run_lengths(crop), *bounds], "attributes": []}
        return as_json(
            {
                "mask": crop * np.uint8(255),
                "bounds": bounds,
                "shapes": [shape] if crop.any() else [],
            }
        )

    return json_response(
        await call.service.work_on(document, answer, box_ns=JSON_NS * pixels_per_cell(document))
    )


async def detect(call: ToolCall, request: Invocation) -> Answer:
    """Return masks of everything in an image, each with the outline of its largest island."""
    thresholds = {} if request.threshold is None else {"pred_iou_thresh": request.threshold}
    document = await call.service.everything(
        image_of(request.image, "image"), {**GRID, **thresholds}
    )
    call.service.check_boxes(document, DIGIT_BYTES)

    def found(record: Record) -> Iterator[dict[str, Any]]:
        crop, bounds = cropped(record)
        # orjson would take longer for the pixels, and keep the interpreter's lock meanwhile
        digits = np.full((crop.size, 2), ord(","), np.uint8)
        np.add(crop.ravel(), ord("0"), out=digits[:, 0])
        yield {
            "label": LABEL,
            "type": "mask",
            "confidence": record["score"],
            "mask": orjson.Fragment(b"[%s%s]" % (digits.tobytes(), as_json(bounds)[1:-1])),
            # of the largest island, for CVAT to convert masks to polygons
            "points": max(outlines_of(record), key=cv2.contourArea).ravel(),
            "attributes": [],
        }

    box_ns = OUTLINE_NS + JSON_NS * pixels_per_cell(document)
    return await call.service.converted(document, found, box_ns=box_ns)


async def embed(call: ToolCall, request: Invocation) -> Answer:
    """Return an image's embedding, from which CVAT's user interface makes the masks of all
    clicks on it.
    """
    file = await call.service.embedding(image_of(request.image, "image"))
    return json_response(await asyncio.to_thread(as_blob, file))


def as_blob(file: bytes) -> bytes:
    """Return an embedding as base64 of (1, 256, 64, 64) float32; raise `InvalidRequest` if it
    has other tensors.
    """
    tensors = load(file)
    if (shapes := {name: tensor.shape for name, tensor in tensors.items()}) != MOBILE_SAM_SHAPES:
        raise invalid("image", f"weights with the embedding {MOBILE_SAM_SHAPES}", f"{shapes}")
    blob = np.ascontiguousarray(tensors["image_embeddings"].transpose(0, 3, 1, 2), "<f4")
    return as_json({"blob": pybase64.b64encode_as_string(blob.data)})


ADAPTER = Adapter(
    "cvat",
    pages={
        "/api/functions": described,
        **{f"/api/functions/{name}": partial(described, name=name) for name in FUNCTIONS},
    },
    work={"/api/function_invocations": (Invocation, invoke)},
)
