"""Requests as they arrive: as JSON, a form or a raw image file; their fields, and the media type of their answer."""

import asyncio
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from orchestrator.regions import AUTO
from utils.api.errors import (
    FieldError,
    InvalidRequest,
    MalformedBody,
    NotAcceptable,
    UnsupportedEncoding,
    UnsupportedMedia,
    invalid,
)
from utils.api.forms import FORM, form_parts
from utils.api.large_json import LARGE_BYTES, lightened
from utils.api.names import path_of, unknown, unknown_field
from utils.api.requests import MAX_IMAGES, MAX_POINTS, EmbedRequest, MaskFormat, ObjectFields, SegmentRequest
from utils.observability.logs import quoted, shown

JSON, PNG, FILE = "application/json", "image/png", "application/octet-stream"
ANSWER_TYPES = (FORM, JSON, PNG)
"""Media types of the answer of `/mobile_sam`, the default first."""
MAX_ACCEPT_CHARS = 8192
"""Maximum length of the `Accept` headers together."""
FILE_TYPES = ("image/", FILE)
"""Content types of raw image files; the file itself tells its format."""
NOT_IN_A_QUERY = {"input_image", "image_id", "pos_coords", "neg_coords", "mask_input", "prompts", "images", "image_ids"}
IN_JSON = "this field in JSON: in the body, or in the part request of a form"
EXPECTED_INSTEAD = {"pos_coords": "x and y, such as x=903&y=310, or this field in JSON"}
"""What is expected in place of query parameters with names of `NOT_IN_A_QUERY`, unless it is `IN_JSON`."""
MAX_PARAMETERS = 2 * MAX_POINTS + 100
"""Maximum number of parameters in a query, in which each point has two."""
QUERY_LISTS = ("box", "labels", "region")
"""Fields that are comma-separated numbers in a query."""
FILE_NAME = re.compile(rb"[^\0-\x1f]{1,250}\.[A-Za-z]\w{1,3}")
"""What curl sends in place of a file if the @ before the name is missing."""
QUALITY = re.compile(r"q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")
MAX_VALUES = 20_000
"""Maximum number of values in a body: of its commas, and opening brackets and braces. The largest valid request, 256
objects with 4096 points and labels, has 18,000. Errors of a body take 3 microseconds per value on the event loop."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_ERRORS = 20
"""Maximum number of offending fields in one problem document."""
MAX_DETAILED_ERRORS = 4000
"""Errors whose details are made, in 3 microseconds of the event loop for each; of more, those of the first values."""
REGION = '[x0, y0, x1, y1], or "auto" with prompts'
TUPLES = {
    "pos_coords": (2, "[x, y]"),
    "neg_coords": (2, "[x, y]"),
    "box": (1, "[x0, y0, x1, y1]"),
    "region": (1, REGION),
}
"""Depth of the number tuples in a field, and their expected form."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass
class Received(Generic[Model]):
    """A request to an inference path."""

    fields: Model
    files: list[bytes]
    """The image files that are not in the fields; several for `EmbedRequest` only."""
    answer_type: str
    """One of `ANSWER_TYPES`."""

    @property
    def file(self) -> bytes | None:
        """The image file, if it is not in the fields."""
        return self.files[0] if self.files else None


async def receive(request: Request, model: type[Model]) -> Received[Model]:
    """Read a request with the fields of a model: those in JSON, and those in its query.

    Raises:
        UnsupportedMedia: the content type is none of the supported ones.
        MalformedBody: the fields are not valid JSON.
        MalformedForm: the body is not `multipart/form-data`, as its content type says.
        InvalidRequest: the query or the body has too many values, there is an unknown, repeated or incomplete part or
            query parameter, a field is in the query and in the body, or a field is invalid.
        NotAcceptable: the answer has none of the media types that the caller accepts.
    """
    answer_type = acceptable_type(request.headers.getlist("accept")) if model is SegmentRequest else JSON
    content_type = request.headers.get("content-type", JSON)
    media_type = _media_type(content_type)
    files: list[bytes] = []
    parameters = parameters_of(request)
    queried = parse_body(query_fields(parameters, model), model) if parameters else None
    body = await _body(request)
    if media_type == FORM:
        # In a thread it lets the event loop run between two pieces of the body.
        max_images = MAX_IMAGES if model is EmbedRequest else 1
        parts = await asyncio.to_thread(form_parts, body, content_type, max_images=max_images)
        (body,), files = parts.get("request", [b"{}"]), parts.get("image", [])
    elif media_type.startswith(FILE_TYPES):
        body, files = b"{}", [body]
    elif not _is_json(media_type):
        raise UnsupportedMedia(media_type)
    if name := next(filter(FILE_NAME.fullmatch, files), None):
        raise invalid("image", "a PNG, JPEG or WebP file", _name_of_a_file(name))
    fields = await parse_in_steps(body, model)
    if queried is not None:
        fields = with_queried(fields, queried)
    if isinstance(fields, SegmentRequest):
        apply_answer_type(fields, answer_type)
    return Received(fields, files, answer_type)


async def receive_json(request: Request) -> bytes:
    """Read the body of a request that must be JSON, by its content type; without one it counts as JSON.

    Raises:
        UnsupportedMedia: the content type is another one.
    """
    media_type = _media_type(request.headers.get("content-type", JSON))
    if not _is_json(media_type):
        raise UnsupportedMedia(media_type, JSON)
    return await _body(request)


def check_content_encoding(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Check that the body of a request, with these ASGI headers, is not compressed.

    Raises:
        UnsupportedEncoding: a header says that it is.
    """
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedEncoding(value.decode("latin-1"))


def _media_type(content_type: str) -> str:
    return content_type.split(";", maxsplit=1)[0].strip().lower()


def _is_json(media_type: str) -> bool:
    return media_type == JSON or media_type.endswith("+json")


async def _body(request: Request) -> bytes:
    # Not `request.body()`, which keeps the body in memory until the end of the request. One chunk is not copied.
    return b"".join([chunk async for chunk in request.stream() if chunk])


def acceptable_type(headers: Iterable[str]) -> str:
    """Return the answer type with the highest quality in the `Accept` headers (RFC 9110, section 12.5.1).

    Raises:
        NotAcceptable: all answer types have the quality 0, or the headers are longer than `MAX_ACCEPT_CHARS`.
    """
    text, qualities = ",".join(headers), dict[str, float]()
    if len(text) > MAX_ACCEPT_CHARS:
        raise NotAcceptable(ANSWER_TYPES, f"{len(text)} characters (at most {MAX_ACCEPT_CHARS})")
    for item in text.lower().split(","):
        name, *parameters = (text.strip() for text in item.split(";"))
        if name:
            quality = next(filter(None, map(QUALITY.fullmatch, parameters)), None)
            qualities[name] = float(quality[1]) if quality else 1.0

    def quality_of(media_type: str) -> float:
        ranges = (media_type, media_type.partition("/")[0] + "/*", "*/*")
        return next((qualities[name] for name in ranges if name in qualities), 0.0)

    best = max(ANSWER_TYPES, key=quality_of)
    if qualities and not quality_of(best):
        raise NotAcceptable(ANSWER_TYPES, quoted(", ".join(qualities), 200))
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


def parameters_of(request: Request) -> list[tuple[str, str]]:
    """Return the query parameters of a request.

    Raises:
        InvalidRequest: there are more than `MAX_PARAMETERS`.
    """
    if request.scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise invalid("query", f"at most {MAX_PARAMETERS} parameters", "more")
    return request.query_params.multi_items()


def query_fields(parameters: Iterable[tuple[str, str]], model: type[BaseModel], **fields: Any) -> bytes:
    """Return the fields of a query, and further ones, as JSON.

    `x=903&y=310` is a point of `pos_coords` and can be repeated; other fields have their names: `box=0,0,9,9`.

    Raises:
        InvalidRequest: an unknown or repeated parameter, or numbers of x and y that differ.
    """
    points: dict[str, list[Any]] = {"x": [], "y": []} if "pos_coords" in model.model_fields else {}
    known = [*points, *(name for name in model.model_fields if name not in NOT_IN_A_QUERY)]
    # With a field in the path, the request has no JSON.
    in_json = set() if fields else NOT_IN_A_QUERY & model.model_fields.keys()
    for name, value in parameters:
        if name in in_json:
            raise invalid(name, EXPECTED_INSTEAD.get(name, IN_JSON), "a query parameter")
        if name not in known:
            raise unknown_field(name, known, "query parameter")
        if name in points:
            points[name].append(_number_or_text(value))
        elif name in fields:
            raise invalid(name, "one query parameter of this name", "several")
        elif name in QUERY_LISTS and value != AUTO:
            fields[name] = [_number_or_text(item) for item in value.split(",", MAX_POINTS)]
        else:
            fields[name] = _number_or_text(value)
    if points and len(points["x"]) != len(points["y"]):
        raise invalid("x", "as many x as y", f"{len(points['x'])} and {len(points['y'])}")
    if points and points["x"]:
        fields["pos_coords"] = list(zip(points["x"], points["y"], strict=True))
    return orjson.dumps(fields)


def with_queried(fields: Model, queried: Model) -> Model:
    """Return the fields of a body together with those of the query.

    Raises:
        InvalidRequest: a field is in both.
    """
    for name in type(fields).model_fields:
        if name in fields.model_fields_set & queried.model_fields_set:
            raise invalid(name, "this field once", "one in the query and one in the body")
    return fields.model_copy(update={name: getattr(queried, name) for name in queried.model_fields_set})


def _number_or_text(value: str) -> Any:
    """Return `3`, `0.5` and `true` as what they are in JSON, other values as text: `null` too."""
    try:
        found = orjson.loads(value)
    except orjson.JSONDecodeError:
        return value
    return value if found is None else found


async def parse_in_steps(body: bytes, model: type[Model]) -> Model:
    """Return the fields in a JSON body of any size, like `parse_body`; the event loop runs meanwhile and afterwards.

    Raises:
        MalformedBody, InvalidRequest: as for `parse_body`, or too much of a large body is not an image in base64.
    """
    if len(body) <= LARGE_BYTES:
        return parse_body(body, model)
    fields = parse_body(await asyncio.to_thread(lightened, body), model)
    await asyncio.sleep(0)  # decoding a large image takes as long as its parser took
    return fields


def parse_body(body: bytes, model: type[Model]) -> Model:
    """Parse a JSON body.

    Raises:
        MalformedBody: the body is not valid JSON, such as the name of a file.
        InvalidRequest: the JSON has more than `MAX_VALUES` values, or does not match the model.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    if FILE_NAME.fullmatch(body):
        raise MalformedBody(_name_of_a_file(body))
    # Images cannot have this many: base64 has none of these characters.
    if has_more_than(MAX_VALUES, b",[{", body):
        raise invalid("body", f"at most {MAX_VALUES} values (split the request)", "more")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error if error.error_count() <= MAX_DETAILED_ERRORS else _first_errors(body, model)
        if first is None:
            raise invalid("body", "a valid request", f"{error.error_count()} invalid values") from None
        raise _refusal(first, model) from None


def _first_errors(body: bytes, model: type[BaseModel]) -> ValidationError | None:
    """Return the errors of the beginnings of all lists and objects in a body; None if there are none."""
    try:
        model.model_validate_json(orjson.dumps(_beginning(orjson.loads(body))))
    except ValidationError as error:
        return error
    except ValueError:  # what pydantic accepts as JSON, and orjson does not
        return None
    return None


def _beginning(value: Any) -> Any:
    if isinstance(value, list):
        return [_beginning(item) for item in value[:MAX_ERRORS]]
    if isinstance(value, dict):
        return {name: _beginning(item) for name, item in itertools.islice(value.items(), 2 * MAX_ERRORS)}
    return value


def _name_of_a_file(data: bytes) -> str:
    name = data.decode(errors="replace")
    return f"the text {quoted(name)} (with curl, put @ before the name of a file)"


def validated(model: type[Model], fields: Mapping[str, Any], *, strict: bool | None = None) -> Model:
    """Return the model of fields that are not JSON; `strict` as for Pydantic's `model_validate`.

    Raises:
        InvalidRequest: they do not match the model.
    """
    try:
        return model.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise _refusal(error, model) from None


def _refusal(error: ValidationError, model: type[BaseModel]) -> MalformedBody | InvalidRequest:
    details = error.errors(include_url=False, include_context=True)
    if details[0]["type"] == "json_invalid":
        return MalformedBody(f"invalid JSON: {details[0]['ctx']['error']}")
    # Pydantic reports several errors for one tuple of the wrong length; they become one.
    fields = dict.fromkeys(_field_error(detail, model) for detail in details[: 4 * MAX_ERRORS])
    return InvalidRequest(errors=list(fields)[:MAX_ERRORS])


def has_more_than(count: int, characters: bytes, body: bytes) -> bool:
    """Return whether the characters together occur more than `count` times."""
    for character in characters:
        if len(body) <= 1_000_000:
            count -= body.count(character)
            continue
        position = -1  # `bytes.count` looks at byte after byte, `find` at many at once
        while count >= 0 and (position := body.find(character, position + 1)) >= 0:
            count -= 1
    return count < 0


def _field_error(detail: Any, model: type[BaseModel]) -> FieldError:
    """Convert a pydantic error."""
    location, kind, value = detail["loc"], detail["type"], detail.get("input")
    if location[:1] == ("region",):  # without the name of the alternative
        location = ("region", *(step for step in location[1:] if isinstance(step, int)))
    inner = 2 if location[:1] == ("prompts",) and len(location) > 2 else 0  # prompts[i].field
    name = location[inner] if len(location) > inner else ""
    depth, tuple_form = TUPLES.get(name, (0, ""))
    if depth and kind in {"tuple_type", "too_long", "missing", "literal_error"} and len(location) >= inner + depth:
        return FieldError(path_of(location[: inner + depth]), tuple_form, _describe(value))
    path = path_of(location)
    if kind == "missing":
        return FieldError(path, "a value", "nothing")
    if kind == "extra_forbidden":
        return unknown(path, str(name), ObjectFields.model_fields if inner else model.model_fields, "field")
    if not path:
        path, expected = "body", "a JSON object"
    elif name == "labels" and len(location) == inner + 2:
        expected = "0, 1, 2 or 3"
    elif kind == "too_long":
        expected = f"at most {detail['ctx']['max_length']} items"
    elif kind == "too_short":
        minimum = detail["ctx"]["min_length"]
        expected = f"at least {minimum} item{'s' if minimum > 1 else ''}"
    else:
        expected = detail["msg"].removeprefix("Input should be ").removeprefix("String should have ")
        expected = expected[:1].lower() + expected[1:]
    return FieldError(path, expected, _describe(value))


def _describe(value: Any) -> str:
    """Describe a value for an error message: type and length of a container, else the value itself."""
    if isinstance(value, (list, tuple, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        return quoted(value)
    return shown(json.dumps(value) if value is None or isinstance(value, bool) else repr(value))
