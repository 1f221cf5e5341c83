"""Requests as they arrive: JSON, multipart/form-data or a raw image file; and the media type of their answer."""

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header
from starlette.requests import Request

from utils.api.errors import MalformedForm, NotAcceptable, UnsupportedMedia
from utils.api.requests import MaskFormat, SegmentRequest, invalid, unknown_field
from utils.observability.logs import quoted

# It logs each malformed form, with bytes of the request; the error says the same to the caller.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

JSON, FORM, PNG, FILE = "application/json", "multipart/form-data", "image/png", "application/octet-stream"
ANSWER_TYPES = (FORM, JSON, PNG)
"""Media types of the answer of `/mobile_sam`, the default first."""
FILE_TYPES = ("image/", FILE)
"""Content types of raw image files; the file itself tells its format."""
FORM_PARTS = ("image", "request")
NOT_IN_A_QUERY = {"input_image", "image_id", "pos_coords", "neg_coords", "mask_input", "prompts"}
QUERY_LISTS = ("box", "labels")
"""Fields that are comma-separated numbers in a query."""
QUALITY = re.compile(r"q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


@dataclass
class Received:
    """A request as it arrived."""

    fields: bytes
    """JSON object with the fields of the request."""
    file: bytes | None = None
    """The image file, if it is not in the fields."""
    answer_type: str = FORM
    """One of `ANSWER_TYPES`."""


async def receive(request: Request, model: type[BaseModel]) -> Received:
    """Read a request; its fields, of a model, are still to be parsed.

    Raises:
        UnsupportedMedia: the content type is none of the supported ones.
        MalformedForm: the body is not `multipart/form-data`, as its content type says.
        InvalidRequest: an unknown, repeated or incomplete part or query parameter.
        NotAcceptable: the answer has none of the media types that the caller accepts.
    """
    answer_type = acceptable_type(request.headers.getlist("accept")) if model is SegmentRequest else JSON
    content_type = request.headers.get("content-type", JSON)
    media_type = content_type.split(";")[0].strip().lower()
    # Not `request.body()`, which keeps the body in memory until the end of the request. One chunk is not copied.
    body = b"".join([chunk async for chunk in request.stream() if chunk])
    if media_type == JSON or media_type.endswith("+json"):
        return Received(body, None, answer_type)
    if media_type == FORM:
        parts = form_parts(body, content_type)
        return Received(parts.get("request", b"{}"), parts.get("image"), answer_type)
    if media_type.startswith(FILE_TYPES):
        return Received(query_fields(request.query_params.multi_items(), model), body, answer_type)
    raise UnsupportedMedia.of(media_type)


def acceptable_type(headers: Iterable[str]) -> str:
    """Return the answer type with the highest quality in the `Accept` headers (RFC 9110, section 12.5.1).

    Raises:
        NotAcceptable: all answer types have the quality 0.
    """
    qualities: dict[str, float] = {}
    for item in ",".join(headers).lower().split(","):
        name, *parameters = (text.strip() for text in item.split(";"))
        if name:
            quality = next(filter(None, map(QUALITY.fullmatch, parameters)), None)
            qualities[name] = float(quality[1]) if quality else 1.0

    def quality_of(media_type: str) -> float:
        ranges = (media_type, media_type.partition("/")[0] + "/*", "*/*")
        return next((qualities[name] for name in ranges if name in qualities), 0.0)

    best = max(ANSWER_TYPES, key=quality_of)
    if qualities and not quality_of(best):
        raise NotAcceptable.of(ANSWER_TYPES, quoted(", ".join(qualities), 200))
    return best


def apply_answer_type(request: SegmentRequest, answer_type: str) -> None:
    """Set the defaults of a request that depend on the type of its answer.

    Raises:
        InvalidRequest: the type of answer has no masks in the format that the request asks for.
    """
    if answer_type == FORM:
        return
    given = request.model_fields_set
    if "segmented_image" not in given:
        request.segmented_image = "none"
    formats: tuple[MaskFormat, ...] = ("png",) if answer_type == PNG else ("rle", "polygon", "png", "json")
    if answer_type == PNG and request.segmented_image != "none":
        request.mask_format = "rle"  # not part of the answer
    elif "mask_format" not in given:
        request.mask_format = formats[0]
    elif request.mask_format not in formats:
        raise invalid("mask_format", f"{' or '.join(formats)} for an answer of {answer_type}", request.mask_format)


def form_parts(body: bytes, content_type: str) -> dict[str, bytes]:
    """Return the parts `image` and `request` of a `multipart/form-data` body, those that it has.

    Raises:
        MalformedForm: not `multipart/form-data`, or incomplete.
        InvalidRequest: another part, or two of the same name.
    """
    parts: dict[str, bytes] = {}
    complete = False

    def add(part: Field | File) -> None:
        name = (part.field_name or b"").decode("utf-8", "replace")
        if name not in FORM_PARTS:
            raise unknown_field(name, FORM_PARTS, "part")
        if name in parts:
            raise invalid(name, "one part of this name", "two")
        if isinstance(part, File):
            part.file_object.seek(0)
        parts[name] = part.file_object.read() if isinstance(part, File) else part.value or b""

    def end() -> None:
        nonlocal complete
        complete = True

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    try:
        FormParser(FORM, add, add, end, boundary, config={"MAX_MEMORY_FILE_SIZE": float("inf")}).write(body)
    except FormParserError as error:
        raise MalformedForm.of(str(error)) from None
    if not complete:
        raise MalformedForm.of(f"{len(body)} bytes without its end")
    return parts


def query_fields(parameters: Iterable[tuple[str, str]], model: type[BaseModel]) -> bytes:
    """Return the fields of a query as JSON.

    `x=903&y=310` is a point of `pos_coords` and can be repeated; other fields have their names: `box=0,0,9,9`.

    Raises:
        InvalidRequest: an unknown or repeated parameter, or numbers of x and y that differ.
    """
    points: dict[str, list[Any]] = {"x": [], "y": []} if "pos_coords" in model.model_fields else {}
    known = [*points, *(name for name in model.model_fields if name not in NOT_IN_A_QUERY)]
    fields: dict[str, Any] = {}
    for name, value in parameters:
        if name not in known:
            raise unknown_field(name, known, "query parameter")
        if name in points:
            points[name].append(_number_or_text(value))
        elif name in fields:
            raise invalid(name, "one query parameter of this name", "several")
        elif name in QUERY_LISTS:
            fields[name] = [_number_or_text(item) for item in value.split(",")]
        else:
            fields[name] = _number_or_text(value)
    if points and len(points["x"]) != len(points["y"]):
        raise invalid("x", "as many x as y", f"{len(points['x'])} and {len(points['y'])}")
    if points and points["x"]:
        fields["pos_coords"] = list(zip(points["x"], points["y"], strict=True))
    return orjson.dumps(fields)


def _number_or_text(value: str) -> Any:
    """Return `3`, `0.5` and `true` as what they are in JSON, other values as text."""
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
