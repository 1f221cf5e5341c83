"""The image of a request: base64 text to the bytes of a file. Nothing here looks at pixels; Triton's side does."""

from __future__ import annotations

import binascii

import pybase64

from utils.errors import FieldError, InvalidRequest

WHITE_SPACE = str.maketrans("", "", " \t\r\n")


def decode_base64(text: str, field: str = "input_image") -> bytes:
    """The bytes behind base64 text or a base64 `data:` URL.

    Line breaks and other white space are accepted, as `base64 FILE` and MIME encoders write them.

    Args:
        text: base64 with padding, or `data:[<media type>];base64,<base64>`.
        field: the field's name, for the error.

    Raises:
        InvalidRequest: not base64, or nothing in it.
    """
    payload = text
    if text[:5].lower() == "data:":
        header, comma, payload = text.partition(",")
        if not comma or not header.lower().endswith(";base64"):
            raise _invalid(field, f"a data URL that does not say base64: {header[:60]!r}")
    try:
        data = pybase64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        try:
            data = pybase64.b64decode(payload.translate(WHITE_SPACE), validate=True)
        except (binascii.Error, ValueError):
            raise _invalid(field, f"{len(payload)} characters that are not base64: {payload[:24]!r}...") from None
    if not data:
        raise _invalid(field, "an empty string")
    return data


def _invalid(field: str, got: str) -> InvalidRequest:
    return InvalidRequest.of([FieldError(field, "base64 of a PNG, JPEG or WebP file", got)])
