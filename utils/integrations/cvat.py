"""Functions for CVAT's server, which asks for them as it asks Nuclio's dashboard.

CVAT shows a person the status of a failed invocation and nothing of its body; the reason is in the service's log.
"""

from typing import Annotated, Any

import cv2
import numpy as np
import orjson
from pydantic import Field
from starlette.responses import Response

from utils.api.answers import json_response
from utils.api.errors import UnknownPath, invalid
from utils.api.requests import MAX_POINTS, Fraction, Point
from utils.integrations.adapter import Adapter, Answer, Call, ImageText, ToolRequest, image_of
from utils.integrations.rasters import OUTLINE_NS, Mask, box_of, decode, outlines
from utils.integrations.service import GRID, Record, as_json
from utils.observability.logs import quoted

INTERACTOR, DETECTOR = "mobile-sam", "mobile-sam-everything"
"""CVAT's user interface decodes the answers of `pth-facebookresearch-sam-vit-h` itself: ids must differ from it."""
LABEL = "object"
"""The detector's only label, which a person maps to one of the task's."""
FUNCTION_NAME = "x-nuclio-function-name"
JSON_NS = 6.0
"""One pixel of a mask's box as a number in JSON."""


def _function(name: str, description: str, annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "nuclio", "annotations": annotations},
        "spec": {"description": description},
        "status": {"state": "ready"},
    }


FUNCTIONS = {
    INTERACTOR: _function(
        INTERACTOR,
        "Masks of objects from points and boxes",
        {
            "name": "MobileSAM",
            "type": "interactor",
            "version": "2",  # of CVAT's interface
            "spec": "",
            "min_pos_points": "0",
            "min_neg_points": "0",
            "startswith_box_optional": "true",
            "help_message": "Click on an object, or draw a box around it; a right click excludes a part",
        },
    ),
    DETECTOR: _function(
        DETECTOR,
        "Masks of all objects in an image, without classes",
        {
            "name": "MobileSAM, everything",
            "type": "detector",
            "spec": orjson.dumps([{"id": 0, "name": LABEL, "type": "mask"}]).decode(),
        },
    ),
}
"""Functions as Nuclio describes them, by id."""


class Invocation(ToolRequest):
    """An invocation of a function: of the interactor with points or a box, of the detector with a threshold."""

    image: ImageText
    pos_points: Annotated[list[Point] | None, Field(max_length=MAX_POINTS)] = None
    neg_points: Annotated[list[Point] | None, Field(max_length=MAX_POINTS)] = None
    obj_bbox: list[Point] | None = None
    threshold: Fraction | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`; raise `InvalidRequest` if the box has not two corners."""
        fields: dict[str, Any] = {"pos_coords": self.pos_points or [], "neg_coords": self.neg_points or []}
        if self.obj_bbox:
            if len(self.obj_bbox) != 2:
                raise invalid("obj_bbox", "two corners of one box", f"{len(self.obj_bbox)} points")
            (x0, y0), (x1, y1) = self.obj_bbox
            fields["box"] = [min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)]
        return fields


async def invoke(call: Call, request: Invocation) -> Answer:
    """Run the function that a header names."""
    name = call.headers.get(FUNCTION_NAME, "")
    if name == INTERACTOR:
        return await interact(call, request)
    if name == DETECTOR:
        return await detect(call, request)
    expected = f"expected {INTERACTOR} or {DETECTOR} in the header {FUNCTION_NAME}"
    raise UnknownPath(f"{expected}, got {quoted(name, 100)}", logged=expected)


async def interact(call: Call, request: Invocation) -> Response:
    """Return the mask of a click, for servers of 2024 and 2025 as `mask` in `bounds`, for newer ones as `shapes`."""
    fields = {**request.fields(), "mask_format": "rle"}
    document = await call.service.segment(image_of(request.image, "image"), fields)
    (mask,) = document["masks"]

    def answer() -> bytes:
        crop, bounds = cropped(mask, mask["rle"])
        shape = {"type": "mask", "points": [*run_lengths(crop), *bounds], "attributes": []}
        return as_json({"mask": crop * np.uint8(255), "bounds": bounds, "shapes": [shape] if crop.any() else []})

    work_s = document["work_s"]
    return json_response(await call.service.work_on([mask], answer, box_ns=JSON_NS, work_s=work_s))


async def detect(call: Call, request: Invocation) -> list[Any]:
    """Return masks of everything in an image, each with the outline of its largest island."""
    thresholds = {} if request.threshold is None else {"pred_iou_thresh": request.threshold}
    document = await call.service.everything(image_of(request.image, "image"), {**GRID, **thresholds})

    def found(record: Record) -> list[dict[str, Any]]:
        crop, bounds = cropped(record, record["segmentation"])
        shape = {
            "label": LABEL,
            "type": "mask",
            "confidence": record["predicted_iou"],
            "mask": orjson.Fragment(b"[%s%s]" % (digits(crop), as_json(bounds)[1:-1])),
            # of the largest island, for CVAT to convert masks to polygons
            "points": max(outlines(crop, (bounds[0], bounds[1])), key=cv2.contourArea).ravel(),
            "attributes": [],
        }
        return [shape]

    return await call.service.converted(document["masks"], found, box_ns=OUTLINE_NS + JSON_NS)


def digits(crop: Mask) -> bytes:
    """Return the pixels of a mask as `0,1,1,`: orjson takes longer, and keeps the interpreter's lock meanwhile."""
    text = np.full((crop.size, 2), ord(","), np.uint8)
    np.add(crop.ravel(), ord("0"), out=text[:, 0])
    return text.tobytes()


def cropped(record: dict[str, Any], rle: dict[str, Any]) -> tuple[Mask, list[int]]:
    """Return a mask in its box, and the box's left, top, right and bottom, all inclusive."""
    left, top, right, bottom = box_of(record)
    return decode(rle, (left, top, right, bottom)), [left, top, right - 1, bottom - 1]


def run_lengths(crop: Mask) -> list[int]:
    """Return the lengths of the runs of equal pixels row by row; the first is of zeros, and may be empty."""
    pixels = crop.ravel()
    edges = np.flatnonzero(np.diff(pixels)) + 1
    lengths: list[int] = np.diff(edges, prepend=0, append=pixels.size).tolist()
    return [0, *lengths] if pixels[0] else lengths


ADAPTER = Adapter(
    "cvat",
    pages={
        "/api/functions": FUNCTIONS,
        f"/api/functions/{INTERACTOR}": FUNCTIONS[INTERACTOR],
        f"/api/functions/{DETECTOR}": FUNCTIONS[DETECTOR],
    },
    work={"/api/function_invocations": (Invocation, invoke)},
)
