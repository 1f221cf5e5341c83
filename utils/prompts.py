"""What a caller sends: the request model behind OpenAPI, and its parsing into points.

Bounds and descriptions stand in the model, so that the Swagger page shows them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from utils.errors import FieldError, InvalidRequest, MalformedBody

MAX_POINTS = 256
MAX_VALUES = 100_000
"""How many values a body may have; two points for each of many prompts stay far below."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_ERRORS = 20
"""How many offending fields an error lists."""
TUPLES = {"pos_coords": (2, "[x, y]"), "neg_coords": (2, "[x, y]"), "box": (1, "[x0, y0, x1, y1]")}
"""How deep in a field its tuples of numbers lie, and how they look."""

NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT = 0, 1, 2, 3
BOX_CORNERS = (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT)

Coordinate = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
Point = Annotated[tuple[Coordinate, Coordinate], Field(description="[x, y] in pixels of the displayed image")]
Box = tuple[Coordinate, Coordinate, Coordinate, Coordinate]

MaskFormat = Literal["json", "npy", "png"]
PictureStyle = Literal["overlay", "cutout", "none"]


class SegmentRequest(BaseModel):
    """One image and one object to find on it, described by clicks, a box, or both."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_image: Annotated[
        str,
        Field(description="base64 of a PNG, JPEG or WebP file; a `data:` URL is accepted"),
    ]
    pos_coords: Annotated[
        list[Point] | None,
        Field(
            max_length=MAX_POINTS,
            description="points, `[[x, y], ...]`, in pixels of the image as displayed (EXIF orientation applied)",
        ),
    ] = None
    labels: Annotated[
        list[Annotated[int, Field(ge=0, le=3)]] | None,
        Field(
            max_length=MAX_POINTS,
            description="one per point of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right. "
            "Left out: all 1",
        ),
    ] = None
    neg_coords: Annotated[
        list[Point] | None,
        Field(max_length=MAX_POINTS, description="further points, all of label 0: what the object is not"),
    ] = None
    box: Annotated[
        Box | None,
        Field(description="`[x0, y0, x1, y1]` around the object, the same as a pair of points labelled 2 and 3"),
    ] = None
    multimask_output: Annotated[
        bool,
        Field(description="false: the best mask. true: three candidates (whole, part, sub-part of what was clicked)"),
    ] = False
    mask_format: Annotated[
        MaskFormat,
        Field(
            description="encoding of the `mask` part. `json`: nested lists of 0 and 1, `[H, W]`, or `[K, H, W]` for "
            "several; `npy`: a NumPy file of the same as bool; `png`: 1-bit picture, several one below the other"
        ),
    ] = "json"
    segmented_image: Annotated[
        PictureStyle,
        Field(
            description="the `segmented_image` part, a PNG. `overlay`: the object tinted and outlined; `cutout`: RGBA, "
            "transparent outside of the object; `none`: no such part"
        ),
    ] = "overlay"


@dataclass(frozen=True)
class Prompt:
    """The points of one object."""

    points_xy: npt.NDArray[np.float32]
    """(P, 2) float32, x then y, pixels of the displayed image."""
    labels: npt.NDArray[np.int32]
    """(P,) int32: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right."""
    fields: tuple[str, ...]
    """Where in the request each point stands, for error messages."""


def parse_body(body: bytes) -> SegmentRequest:
    """The request in a JSON body.

    Raises:
        MalformedBody: no JSON.
        InvalidRequest: JSON, but not such a request.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    # base64 holds no comma: what has many is not an image but a load on the parser.
    if len(body) > MAX_VALUES and (values := body.count(b",")) > MAX_VALUES:
        raise _invalid("body", f"at most {MAX_VALUES} values", f"{values}")
    try:
        return SegmentRequest.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        if details[0]["type"] == "json_invalid":
            raise MalformedBody.of(details[0]["ctx"]["error"]) from None
        raise InvalidRequest.of([_field_error(detail) for detail in details[:MAX_ERRORS]]) from None


def to_prompt(request: SegmentRequest) -> Prompt:
    """The request's clicks and box as one list of points.

    Raises:
        InvalidRequest: no prompt at all, lengths that differ, half a box, two boxes, or a box inside out.
    """
    positive = request.pos_coords or []
    labels = request.labels if request.labels is not None else [POSITIVE] * len(positive)
    if len(labels) != len(positive):
        raise _invalid("labels", f"{len(positive)} labels, one per point of pos_coords", f"{len(labels)}")
    points = [(x, y, label, f"pos_coords[{i}]") for i, ((x, y), label) in enumerate(zip(positive, labels, strict=True))]
    points += [(x, y, NEGATIVE, f"neg_coords[{i}]") for i, (x, y) in enumerate(request.neg_coords or [])]
    if request.box is not None:
        x0, y0, x1, y1 = request.box
        points += [(x0, y0, BOX_TOP_LEFT, "box"), (x1, y1, BOX_BOTTOM_RIGHT, "box")]
    if not points:
        raise _invalid("pos_coords", "a point in pos_coords or neg_coords, or a box", "no prompt")
    top_left, bottom_right = ([point[:2] for point in points if point[2] == label] for label in BOX_CORNERS)
    _check_box(top_left, bottom_right, "box" if request.box is not None else "labels")
    return Prompt(
        np.array([point[:2] for point in points], np.float32),
        np.array([point[2] for point in points], np.int32),
        tuple(point[3] for point in points),
    )


def _check_box(top_left: list[tuple[float, float]], bottom_right: list[tuple[float, float]], field: str) -> None:
    if len(top_left) != len(bottom_right) or len(top_left) > 1:
        raise _invalid(
            field,
            "at most one box: one point labelled 2 and one labelled 3, or the field box",
            f"{len(top_left)} top-left and {len(bottom_right)} bottom-right corners",
        )
    if top_left:
        (x0, y0), (x1, y1) = top_left[0], bottom_right[0]
        if not (x0 < x1 and y0 < y1):
            raise _invalid(field, "a box with x0 < x1 and y0 < y1", f"[{x0:g}, {y0:g}, {x1:g}, {y1:g}]")


def _invalid(field: str, expected: str, got: str) -> InvalidRequest:
    return InvalidRequest.of([FieldError(field, expected, got)])


def _field_error(detail: Any) -> FieldError:
    """A pydantic error in the words of ours."""
    location, kind, value = detail["loc"], detail["type"], detail.get("input")
    if kind in {"tuple_type", "too_long", "missing"} and location[0] in TUPLES:
        depth, expected = TUPLES[location[0]]
        if len(location) >= depth:
            return FieldError(_path(location[:depth]), expected, _shown(value))
    path = _path(location)
    if kind == "missing":
        return FieldError(path, "a value", "nothing")
    if kind == "extra_forbidden":
        return FieldError(path, f"one of the fields {', '.join(SegmentRequest.model_fields)}", "an unknown field")
    if not path:
        return FieldError("body", "a JSON object", _shown(value))
    if location[0] == "labels" and len(location) == 2:
        return FieldError(path, "0, 1, 2 or 3", _shown(value))
    if kind == "too_long":
        return FieldError(path, f"at most {detail['ctx']['max_length']} items", _shown(value))
    expected = detail["msg"].removeprefix("Input should be ")
    return FieldError(path, expected[:1].lower() + expected[1:], _shown(value))


def _path(location: tuple[int | str, ...], limit: int = 80) -> str:
    """`("pos_coords", 1, 0)` as `pos_coords[1][0]`."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).removeprefix(".")
    path = path if len(path) <= limit else path[:limit] + "..."
    # A key of the caller's may hold line breaks, which have no place in a log.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in path)


def _shown(value: Any, limit: int = 80) -> str:
    """A value as it may stand in an error message: its type where it is large, else its text."""
    if isinstance(value, (list, tuple, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"
