"""Media type of an answer, by the header `Accept`, and what it means for a request's fields."""

import re
from collections.abc import Iterable

from utils.api.forms import FORM
from utils.api.requests import MaskFormat, SegmentRequest
from utils.errors import NotAcceptable, invalid
from utils.observability.logs import quoted

JSON, PNG, FILE = "application/json", "image/png", "application/octet-stream"
ANSWER_TYPES = (FORM, JSON, PNG)
"""Media types of the answer of `/mobile_sam`, the default first."""
MAX_ACCEPT_CHARS = 8192
"""Maximum length of the `Accept` headers together."""
PNG_FORMATS: tuple[MaskFormat, ...] = ("png",)
JSON_FORMATS: tuple[MaskFormat, ...] = ("rle", "polygon", "png", "json")
"""Formats of masks in answers of these types, the default first."""
QUALITY = re.compile(r"q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


def acceptable_type(headers: Iterable[str]) -> str:
    """Return the answer type with the highest quality in the `Accept` headers.

    RFC 9110, section 12.5.1, says what they mean.

    Raises:
        NotAcceptable: all answer types have the quality 0, or the headers are longer than
            `MAX_ACCEPT_CHARS`.
    """
    text = ",".join(headers)
    if len(text) > MAX_ACCEPT_CHARS:
        length = f"{len(text)} characters (at most {MAX_ACCEPT_CHARS})"
        raise NotAcceptable(ANSWER_TYPES, length)
    qualities = _qualities(text.lower())

    def quality_of(media_type: str) -> float:
        kind = media_type.partition("/")[0]
        for media_range in (media_type, f"{kind}/*", "*/*"):
            if media_range in qualities:
                return qualities[media_range]
        return 0.0

    best = max(ANSWER_TYPES, key=quality_of)
    if qualities and not quality_of(best):
        raise NotAcceptable(ANSWER_TYPES, quoted(", ".join(qualities), 200))
    return best


def _qualities(text: str) -> dict[str, float]:
    """Return the quality of each media range in an `Accept` header; 1 without a valid one."""
    qualities: dict[str, float] = {}
    for item in text.split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        if not name:
            continue
        qualities[name] = 1.0
        for parameter in parameters:
            quality = QUALITY.fullmatch(parameter)
            if quality:
                qualities[name] = float(quality[1])
                break
    return qualities


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
    is_picture = answer_type == PNG
    if is_picture and request.segmented_image != "none":
        request.mask_format = "rle"  # not part of the answer
        return
    formats = PNG_FORMATS if is_picture else JSON_FORMATS
    if "mask_format" not in given:
        request.mask_format = formats[0]
    elif request.mask_format not in formats:
        expected = f"{' or '.join(formats)} for an answer of {answer_type}"
        raise invalid("mask_format", expected, request.mask_format)
