"""X-AnyLabeling's remote server: `GET /v1/models`, `POST /v1/predict`.

Its client treats every other status than 200 as an answer without shapes that replaces all
annotations of the image, and shows no reason. Errors are therefore answered with status 200, no
shapes, and the reason as description of the image, which the client shows.
"""

import asyncio
import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import cv2
import numpy as np
from pydantic import Field
from starlette.responses import JSONResponse, Response

from orchestrator.polygons import Ring
from utils.api.inputs import MAX_TOTAL_POINTS
from utils.api.requests import MAX_OBJECTS, MAX_POINTS, Box, Point
from utils.errors import Problem, invalid
from utils.inference.everything import Fraction
from utils.inference.request import ImageSource
from utils.integrations.adapter import Adapter, ImageText, ToolCall, ToolRequest, image_of
from utils.integrations.rasters import POLYGON_NS, Record, closed, polygons_of
from utils.integrations.service import GRID, MaskService

MODEL = "mobile_sam"
OBJECT = "AUTOLABEL_OBJECT"
"""Label of shapes that the client previews until the person names the object."""
MIN_ISLAND = 0.2
"""Smallest island of a mask as a fraction of the mean area of its islands, as in the tool's own
models."""
REASONS = {
    "unauthorized": (
        "the service needs an API key: choose the remote server again and enter it in the dialog"
    ),
    "inference-timeout": "no answer in time: the service is busy; try again later",
}
"""Error texts by slug; they replace texts about headers and fields that the person does not see."""

PROMPT_WIDGETS = (
    "button_add_point",
    "button_remove_point",
    "button_add_rect",
    "button_clear",
    "button_finish_object",
)
FINENESS_WIDGETS = ("mask_fineness_slider", "mask_fineness_value_label")
THRESHOLD_WIDGETS = {
    "button_run": {},
    "input_conf": {},
    "edit_conf": {"tooltip": "Lowest predicted IoU of a mask; 0: default of the weights"},
    "input_iou": {},
    "edit_iou": {"tooltip": "IoU of boxes above which a mask is a duplicate; 0: 0.7"},
}
TASKS: list[dict[str, Any]] = [
    {
        "id": name,
        "name": name.capitalize(),
        "batch_processing_mode": batch,
        "active_widgets": widgets,
    }
    for name, batch, widgets in (
        ("polygon", None, {widget: {} for widget in (*PROMPT_WIDGETS, *FINENESS_WIDGETS)}),
        ("rectangle", None, {widget: {} for widget in PROMPT_WIDGETS}),
        (
            "everything",
            "default",
            {**THRESHOLD_WIDGETS, **{widget: {} for widget in FINENESS_WIDGETS}},
        ),
    )
]
"""The client shows them as a list, with their widgets, and sends the chosen one as
`current_task`."""
VALUES: dict[str, float] = {
    "mask_fineness_slider": 10,
    "edit_conf": 0.0,
    "edit_iou": 0.0,
    "toggle_preserve_existing_annotations": True,  # also where the client gets no answer at all
}
INFO: dict[str, Any] = {
    "display_name": "MobileSAM",
    "params": {},
    "batch_processing_mode": None,
    "widgets": [
        {"name": name, "value": VALUES.get(name)}
        for name in dict.fromkeys([*PROMPT_WIDGETS, *THRESHOLD_WIDGETS, *FINENESS_WIDGETS, *VALUES])
    ],
    "available_tasks": TASKS,
}


class PointMark(ToolRequest):
    """A click."""

    type: Literal["point"]
    data: Point
    label: Literal[0, 1] = 1


class RectangleMark(ToolRequest):
    """A rectangle around an object, between any two opposite corners."""

    type: Literal["rectangle"]
    data: Box
    label: Literal[1] = 1


Mark = Annotated[PointMark | RectangleMark, Field(discriminator="type")]


class AnylabelingParams(ToolRequest):
    """Settings of the person; the client sends 0 for thresholds without a widget."""

    marks: list[Mark] = Field(default=[], max_length=MAX_POINTS + MAX_OBJECTS)
    current_task: Literal["polygon", "rectangle", "everything"] | None = None
    epsilon_factor: Fraction = 0.001
    conf_threshold: Fraction = 0
    iou_threshold: Fraction = 0


class AnylabelingRequest(ToolRequest):
    """The body of `/v1/predict`."""

    model: Literal["mobile_sam"]
    image: ImageText
    params: AnylabelingParams = AnylabelingParams()


async def predict(call: ToolCall, request: AnylabelingRequest) -> dict[str, Any]:
    """Segment the marked objects or everything."""
    image = await asyncio.to_thread(image_of, request.image, "image")
    task = everything if request.params.current_task == "everything" else segment
    return _answer(await task(call.service, image, request.params))


async def segment(service: MaskService, image: ImageSource, params: AnylabelingParams) -> list[Any]:
    """Return the shapes of the marked objects."""
    prompts = prompts_of(params.marks)
    if not prompts:  # the person has removed the last mark
        return []
    fields = {
        "prompts": prompts,
        "mask_format": "rle" if params.current_task == "rectangle" else "polygon",
    }
    document = await service.segment(image, fields)
    if params.current_task == "rectangle":
        boxes = [(mask["box"], mask["score"]) for mask in document["masks"] if mask["area"]]
        return [
            shape(
                "rectangle",
                [[left, top], [right, top], [right, bottom], [left, bottom]],
                OBJECT,
                score,
            )
            for (left, top, right, bottom), score in boxes
        ]

    def shapes(mask: Record) -> Iterator[dict[str, Any]]:
        for ring in islands(mask, params.epsilon_factor):
            yield shape("polygon", closed(ring), OBJECT, mask["score"])

    return await service.converted(document, shapes)


async def everything(
    service: MaskService, image: ImageSource, params: AnylabelingParams
) -> list[Any]:
    """Return the shapes of all objects, named as by the tool's own models; marks of an earlier
    task are not used.
    """
    thresholds = {"pred_iou_thresh": params.conf_threshold, "box_nms_thresh": params.iou_threshold}
    chosen = {name: value for name, value in thresholds.items() if value}
    document = await service.everything(image, {**GRID, **chosen})
    numbers = itertools.count(1)

    def shapes(mask: Record) -> Iterator[dict[str, Any]]:
        for ring in islands(mask, params.epsilon_factor):
            yield shape("polygon", closed(ring), f"object{next(numbers)}", mask["score"])

    return await service.converted(document, shapes, box_ns=POLYGON_NS)


def prompts_of(marks: list[Mark]) -> list[dict[str, Any]]:
    """Return `prompts` of `/mobile_sam`: an object per rectangle, each with all points, or one
    with the points.
    """
    points = [mark for mark in marks if isinstance(mark, PointMark)]
    clicks = {
        "pos_coords": [point.data for point in points],
        "labels": [point.label for point in points],
    }
    boxes = [
        {"box": (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))}
        for x0, y0, x1, y1 in (mark.data for mark in marks if isinstance(mark, RectangleMark))
    ]
    if (total := len(boxes) * (len(points) + 2)) > MAX_TOTAL_POINTS:
        got = f"{len(points)} points in each of {len(boxes)} rectangles: {total}"
        raise invalid(
            "marks",
            f"at most {MAX_TOTAL_POINTS} points and corners in all rectangles together",
            got,
        )
    return [{**clicks, **box} for box in boxes] or [clicks] * bool(points)


def islands(mask: Record, fineness: float) -> list[Ring]:
    """Return the outer rings of a mask's polygons, simplified, without small ones; the client's
    polygons have no holes.

    `fineness` is the distance of the simplified ring from the ring, as a fraction of the ring's
    length.
    """
    outer = [np.array(rings[0], np.float32) for rings in polygons_of(mask)]
    areas = [cv2.contourArea(ring) for ring in outer]
    simple = [
        cv2.approxPolyDP(ring, fineness * cv2.arcLength(ring, True), closed=True)[:, 0]
        for ring, area in zip(outer, areas, strict=True)
        if area > MIN_ISLAND * sum(areas) / len(areas)
    ]
    return [ring.tolist() for ring in simple if len(ring) >= 3]


def shape(kind: str, points: Ring, label: str, score: float) -> dict[str, Any]:
    """Return a shape of the client."""
    return {"label": label, "shape_type": kind, "points": points, "score": min(score, 1.0)}


def error_response(problem: Problem) -> Response:
    """Return an error that the client shows, and that keeps the person's annotations."""
    answer = _answer([], f"MobileSAM: {REASONS.get(problem.slug, problem.detail)}")
    error = {"code": problem.slug, "message": problem.detail}
    return JSONResponse({**answer, "success": False, "error": error}, headers=problem.headers)


def _answer(shapes: list[Any], description: str = "") -> dict[str, Any]:
    return {
        "success": True,
        "data": {"shapes": shapes, "description": description, "replace": False},
    }


ADAPTER = Adapter(
    "x-anylabeling",
    {
        "/v1/models": {"success": True, "data": {MODEL: INFO}},
        f"/v1/models/{MODEL}/info": {"success": True, "data": {"model_id": MODEL, **INFO}},
    },
    {"/v1/predict": (AnylabelingRequest, predict)},
    error_response,
)
