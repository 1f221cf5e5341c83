"""What callers send: the request models behind OpenAPI, and their parsing.

Bounds and descriptions stand in the models, so that the Swagger page shows them.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from utils.errors import FieldError, InvalidRequest, MalformedBody
from utils.text import quoted, shown

MAX_POINTS = 256
MAX_OBJECTS = 256
MAX_VERSION = 2**31 - 1
MAX_VALUES = 20_000
"""How many values a body may have. The largest valid request, 4096 points with labels of 256 objects, has 14,000; a
wrong one costs 3 microseconds a value, on the event loop, to say what is wrong with it."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
EMPTY = '""'
"""How a key without a character is shown."""
MAX_ERRORS = 20
"""How many offending fields an error lists."""
TUPLES = {"pos_coords": (2, "[x, y]"), "neg_coords": (2, "[x, y]"), "box": (1, "[x0, y0, x1, y1]")}
"""How deep in a field its tuples of numbers lie, and how they look."""

Coordinate = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
Point = Annotated[tuple[Coordinate, Coordinate], Field(description="[x, y] in pixels of the displayed image")]
Box = tuple[Coordinate, Coordinate, Coordinate, Coordinate]
Share = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]

MaskFormat = Literal["json", "npy", "png", "rle", "polygon"]
PictureStyle = Literal["overlay", "cutout", "none"]


class ImageFields(BaseModel):
    """An image, sent now or earlier."""

    model_config = ConfigDict(extra="forbid", strict=True)

    input_image: Annotated[
        str | None,
        Field(description="base64 of a PNG, JPEG or WebP file; a `data:` URL is accepted"),
    ] = None
    image_id: Annotated[
        str | None,
        Field(
            max_length=128,
            description="in place of `input_image`: the image's id, as an earlier answer gave it. An id the service "
            "does not know (any more) is answered 404 `image-not-cached`: send the image again",
        ),
    ] = None
    model_version: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_VERSION,
            description="which version of the model answers, where several are loaded: `GET /info` names them. Left "
            "out: the newest",
        ),
    ] = None


class ObjectFields(BaseModel):
    """One object to find, described by clicks, a box, or both."""

    model_config = ConfigDict(extra="forbid", strict=True)

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
    mask_input: Annotated[
        str | None,
        Field(
            description="an earlier answer's `low_res_mask`, to refine it: base64 of a NumPy file, (256, 256) logits"
        ),
    ] = None


class EmbedRequest(ImageFields):
    """An image to encode ahead of the first click."""


class SegmentRequest(ObjectFields, ImageFields):
    """An image and what to find on it: one object, or several as `prompts`."""

    prompts: Annotated[
        list[ObjectFields] | None,
        Field(
            min_length=1,
            max_length=MAX_OBJECTS,
            description="several objects at once, each with its own `pos_coords`, `labels`, `neg_coords`, `box` and "
            "`mask_input`; in place of these fields beside it",
        ),
    ] = None
    multimask_output: Annotated[
        bool,
        Field(description="false: the best mask. true: three candidates (whole, part, sub-part of what was clicked)"),
    ] = False
    mask_format: Annotated[
        MaskFormat,
        Field(
            description="encoding of the `mask` part. `json`: nested lists of 0 and 1, `[H, W]`, or `[K, H, W]` for "
            "several; `npy`: a NumPy file of the same as bool; `png`: 1-bit picture, several one below the other; "
            '`rle`: COCO\'s compressed run lengths, `{"size": [H, W], "counts": "..."}`; `polygon`: `[[outer ring, '
            "hole, ...], ...]`, each ring a list of `[x, y]` with whole numbers at the edges of pixels. Several of "
            "the last two stand in a list"
        ),
    ] = "json"
    segmented_image: Annotated[
        PictureStyle,
        Field(
            description="the `segmented_image` part, a PNG. `overlay`: the objects tinted and outlined; `cutout`: "
            "RGBA, transparent outside of the objects; `none`: no such part"
        ),
    ] = "overlay"
    low_res_mask: Annotated[
        bool,
        Field(
            description="whether `result` holds each mask's `low_res_mask`, to send as `mask_input` with more clicks"
        ),
    ] = False


class EverythingRequest(ImageFields):
    """An image to segment whole. Names and most defaults are those of Segment Anything's generator."""

    points_per_side: Annotated[int, Field(ge=1, le=64, description="the grid of clicks has this many squared")] = 32
    pred_iou_thresh: Annotated[
        Share | None,
        Field(description="least score of a mask. Left out: what suits the weights in use, 0.88 for MobileSAM's"),
    ] = None
    stability_score_thresh: Annotated[
        Share | None,
        Field(
            description="least IoU between the mask at a higher and at a lower threshold. Left out: what suits the "
            "weights in use, 0.95 for MobileSAM's"
        ),
    ] = None
    stability_score_offset: Annotated[
        float, Field(gt=0, le=20, allow_inf_nan=False, description="how much higher and lower, in logits")
    ] = 1.0
    box_nms_thresh: Annotated[
        Share, Field(description="of two masks whose boxes have a greater IoU, the one with the lower score goes")
    ] = 0.7
    crop_n_layers: Annotated[
        int, Field(ge=0, le=3, description="layers of enlarged crops to segment too; layer i has 4^i")
    ] = 0
    crop_nms_thresh: Annotated[
        Share, Field(description="the same as `box_nms_thresh`, between crops; the smaller crop's mask stays")
    ] = 0.7
    crop_overlap_ratio: Annotated[
        Share, Field(description="how far crops overlap, as a share of the image's shorter side")
    ] = 512 / 1500
    crop_n_points_downscale_factor: Annotated[
        int, Field(ge=1, le=16, description="layer i has points_per_side divided by this to the power i")
    ] = 1
    min_mask_region_area: Annotated[
        int, Field(ge=0, le=10**9, description="holes and islands of fewer pixels are filled and removed")
    ] = 0
    progress: Annotated[
        bool,
        Field(
            description='true: the answer comes line by line (`application/x-ndjson`), `{"done": 3, "total": 64}` as '
            'the work goes on, and in the last line the result as `{"done": 64, "total": 64, "result": {...}}`'
        ),
    ] = False


Request = TypeVar("Request", bound=BaseModel)


def parse_body(body: bytes, model: type[Request]) -> Request:
    """The request in a JSON body.

    Raises:
        MalformedBody: no JSON.
        InvalidRequest: JSON, but not such a request.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    # base64 holds no comma: what has many is not an image but a load on the parser.
    if has_more_than(MAX_VALUES, b",", body):
        raise invalid("body", f"at most {MAX_VALUES} values", "more")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        if details[0]["type"] == "json_invalid":
            raise MalformedBody.of(details[0]["ctx"]["error"]) from None
        # One short list in place of a pair of numbers is several errors of pydantic's, and one of ours.
        fields = dict.fromkeys(_field_error(detail, model) for detail in details[: 4 * MAX_ERRORS])
        raise InvalidRequest.of(list(fields)[:MAX_ERRORS]) from None


def has_more_than(count: int, byte: bytes, body: bytes) -> bool:
    """Return whether a byte occurs more than `count` times."""
    if len(body) <= 1_000_000:
        return body.count(byte) > count
    position = -1  # `bytes.count` looks at byte after byte, `find` at many at once
    for _ in range(count + 1):
        position = body.find(byte, position + 1)
        if position < 0:
            return False
    return True


def invalid(field: str, expected: str, got: str) -> InvalidRequest:
    """The refusal of one field."""
    return InvalidRequest.of([FieldError(field, expected, got)])


def _field_error(detail: Any, model: type[BaseModel]) -> FieldError:
    """A pydantic error in the words of ours."""
    location, kind, value = detail["loc"], detail["type"], detail.get("input")
    inner = 2 if location[:1] == ("prompts",) and len(location) > 2 else 0  # fields of an object stand one level deeper
    name = location[inner] if len(location) > inner else ""
    if kind in {"tuple_type", "too_long", "missing"} and name in TUPLES:
        depth, expected = TUPLES[name]
        if len(location) >= inner + depth:
            return FieldError(_path(location[: inner + depth]), expected, _described(value))
    path = _path(location)
    if kind == "missing":
        return FieldError(path, "a value", "nothing")
    if kind == "extra_forbidden":
        known = ObjectFields.model_fields if inner else model.model_fields
        return FieldError(path, f"one of the fields {', '.join(known)}", "an unknown field")
    if not path:
        return FieldError("body", "a JSON object", _described(value))
    if name == "labels" and len(location) == inner + 2:
        return FieldError(path, "0, 1, 2 or 3", _described(value))
    if kind == "too_long":
        return FieldError(path, f"at most {detail['ctx']['max_length']} items", _described(value))
    if kind == "too_short":
        least = detail["ctx"]["min_length"]
        return FieldError(path, f"at least {least} item{'s' if least > 1 else ''}", _described(value))
    expected = detail["msg"].removeprefix("Input should be ").removeprefix("String should have ")
    return FieldError(path, expected[:1].lower() + expected[1:], _described(value))


def _path(location: tuple[int | str, ...]) -> str:
    """`("pos_coords", 1, 0)` as `pos_coords[1][0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step or EMPTY}" for step in location).removeprefix(".")


def _described(value: Any) -> str:
    """A value as it may stand in an error message: its type where it is large, else its text."""
    if isinstance(value, (list, tuple, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        return quoted(value)
    return shown(json.dumps(value) if value is None or isinstance(value, bool) else repr(value))
