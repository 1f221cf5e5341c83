"""The body of a request, as JSON, a form or a raw image file, and its fields."""

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

from utils.api.accept import FILE, JSON, acceptable_type, apply_answer_type
from utils.api.forms import FORM, form_parts
from utils.api.large_json import LARGE_BYTES, lightened
from utils.api.names import path_of, unknown
from utils.api.query import parameters_of, query_fields, with_queried
from utils.api.requests import MAX_IMAGES, EmbedRequest, ObjectFields, SegmentRequest
from utils.errors import (
    FieldError,
    InvalidRequest,
    MalformedBody,
    UnsupportedEncoding,
    UnsupportedMedia,
    invalid,
)
from utils.observability.logs import quoted, shown

FILE_TYPES = ("image/", FILE)
"""Content types of raw image files; the file itself tells its format."""
FILE_NAME = re.compile(rb"[^\0-\x1f]{1,250}\.[A-Za-z]\w{1,3}")
"""What curl sends in place of a file if the @ before the name is missing."""
MAX_VALUES = 20_000
"""Maximum number of values in a body: of its commas, and opening brackets and braces. The largest
valid request, 256 objects with 4096 points and labels, has 18,000. Errors of a body take 3
microseconds per value on the event loop."""
MAX_COUNTED_BYTES = 100_000
"""Larger bodies are usually images, in which `bytes.find` looks at many bytes at once: 0.02 ms for
500 kB, where `bytes.count` takes 0.45 ms. It takes 2 ms for `MAX_VALUES` values."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_ERRORS = 20
"""Maximum number of offending fields in one problem document."""
MAX_DETAILED_ERRORS = 4000
"""Errors whose details are made, in 3 microseconds of the event loop for each; of more, those of
the first values."""
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
        InvalidRequest: the query or the body has too many values, there is an unknown, repeated or
            incomplete part or query parameter, a field is in the query and in the body, or a field
            is invalid.
        NotAcceptable: the answer has none of the media types that the caller accepts.
    """
    answer_type = JSON
    if model is SegmentRequest:
        answer_type = acceptable_type(request.headers.getlist("accept"))
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
    """Read the body of a request that must be JSON, by its content type.

    Without a content type it counts as JSON.

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
    # Not `request.body()`, which keeps the body in memory until the end of the request. One chunk
    # is not copied.
    return b"".join([chunk async for chunk in request.stream() if chunk])


async def parse_in_steps(body: bytes, model: type[Model]) -> Model:
    """Return the fields in a JSON body of any size, like `parse_body`.

    The event loop runs meanwhile and afterwards.

    Raises:
        MalformedBody, InvalidRequest: as for `parse_body`, or too much of a large body is not an
            image in base64.
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
            count = error.error_count()
            raise invalid("body", "a valid request", f"{count} invalid values") from None
        raise _refusal(first, model) from None


def _first_errors(body: bytes, model: type[BaseModel]) -> ValidationError | None:
    """Return the errors of the beginnings of all lists and objects in a body.

    None if there are none.
    """
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
        first_items = itertools.islice(value.items(), 2 * MAX_ERRORS)
        return {name: _beginning(item) for name, item in first_items}
    return value


def _name_of_a_file(data: bytes) -> str:
    name = data.decode(errors="replace")
    return f"the text {quoted(name)} (with curl, put @ before the name of a file)"


def validated(
    model: type[Model],
    fields: Mapping[str, Any],
    *,
    strict: bool | None = None,
) -> Model:
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
        if len(body) <= MAX_COUNTED_BYTES:
            count -= body.count(character)
            continue
        position = -1
        while count >= 0 and (position := body.find(character, position + 1)) >= 0:
            count -= 1
    return count < 0


def _field_error(detail: Any, model: type[BaseModel]) -> FieldError:
    """Convert a pydantic error."""
    location, kind, value = detail["loc"], detail["type"], detail.get("input")
    if location[:1] == ("region",):  # without the name of the alternative
        location = ("region", *(step for step in location[1:] if isinstance(step, int)))
    in_prompt = location[:1] == ("prompts",) and len(location) > 2
    at = 2 if in_prompt else 0  # where the field's name is: prompts, i, field
    name = location[at] if len(location) > at else ""

    # The whole tuple is wrong, not a part of it that is missing.
    depth, tuple_form = TUPLES.get(name, (0, ""))
    is_tuple_error = kind in {"tuple_type", "too_long", "missing", "literal_error"}
    if depth and is_tuple_error and len(location) >= at + depth:
        return FieldError(path_of(location[: at + depth]), tuple_form, _describe(value))

    path = path_of(location)
    if kind == "missing":
        return FieldError(path, "a value", "nothing")
    if kind == "extra_forbidden":
        known = ObjectFields.model_fields if in_prompt else model.model_fields
        return unknown(path, str(name), known, "field")
    if not path:
        return FieldError("body", "a JSON object", _describe(value))
    if name == "labels" and len(location) == at + 2:
        return FieldError(path, "0, 1, 2 or 3", _describe(value))
    return FieldError(path, _expected(detail), _describe(value))


def _expected(detail: Any) -> str:
    """Return what pydantic expected, in the words of our errors."""
    if detail["type"] == "too_long":
        return f"at most {detail['ctx']['max_length']} items"
    if detail["type"] == "too_short":
        minimum = detail["ctx"]["min_length"]
        return f"at least {minimum} item{'s' if minimum > 1 else ''}"
    message: str = detail["msg"].removeprefix("Input should be ")
    message = message.removeprefix("String should have ")
    return message[:1].lower() + message[1:]


def _describe(value: Any) -> str:
    """Describe a value for an error message: a container by type and length, others by value."""
    if isinstance(value, (list, tuple, dict)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, str):
        return quoted(value)
    return shown(json.dumps(value) if value is None or isinstance(value, bool) else repr(value))
