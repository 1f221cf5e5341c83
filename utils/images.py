"""The image of a request: the bytes of a file, or an id. Nothing here looks at pixels; Triton's side does."""

from __future__ import annotations

import binascii
from dataclasses import dataclass

import pybase64

from utils.schemas import ImageFields, invalid
from utils.text import quoted

WHITE_SPACE = b" \t\r\n"


IMAGE_FILE = "base64 of a PNG, JPEG or WebP file"


@dataclass(frozen=True)
class ImageSource:
    """An image, sent now or earlier: one of the two is None."""

    file: bytes | None
    """A PNG, JPEG or WebP file."""
    image_id: str | None
    owner: str = ""
    """Name of the API key that the request came with: what is known of an image is kept apart by it."""


def image_source(request: ImageFields, owner: str = "") -> ImageSource:
    """The image that a request is about.

    Args:
        request: what the caller sent.
        owner: the caller's name, where callers have names.

    Raises:
        InvalidRequest: not exactly one of `input_image` and `image_id`, or not base64.
    """
    if (request.input_image is None) == (request.image_id is None):
        got = "neither" if request.image_id is None else "both"
        raise invalid("input_image", "exactly one of input_image and image_id", got)
    if request.input_image is None:
        return ImageSource(None, request.image_id, owner)
    text, request.input_image = request.input_image, None  # which takes as much memory again while it is answered
    return ImageSource(decode_base64(text, "input_image", IMAGE_FILE), None, owner)


def decode_base64(text: str, field: str, expected: str) -> bytes:
    """The bytes behind base64 text or a base64 `data:` URL.

    Line breaks and other white space are accepted, as `base64 FILE` and MIME encoders write them.

    Args:
        text: base64 with padding, or `data:[<media type>];base64,<base64>`.
        field: the field's name, for the error.
        expected: what it should hold, for the error.

    Raises:
        InvalidRequest: not base64, or nothing in it.
    """
    payload = text
    if text[:5].lower() == "data:":
        header, comma, payload = text.partition(",")
        if not comma or not header.lower().endswith(";base64"):
            raise invalid(field, expected, f"a data URL that does not say base64: {quoted(header, 60)}")
    try:
        data = pybase64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        try:
            # As bytes: what is not ASCII ends here, where `str.translate` would go through it by the tenth of a
            # microsecond a character, on the event loop.
            data = pybase64.b64decode(payload.encode("ascii").translate(None, WHITE_SPACE), validate=True)
        except (binascii.Error, ValueError):
            raise invalid(
                field, expected, f"{len(payload)} characters that are not base64: {payload[:24]!r}..."
            ) from None
    if not data:
        raise invalid(field, expected, "an empty string")
    return data
