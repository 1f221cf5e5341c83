"""The image of a request: file bytes or an image id. Pixels are decoded in Triton's models, not here."""

import binascii
from dataclasses import dataclass, field

import pybase64

from utils.api.requests import ImageFields, invalid
from utils.observability.context import CALLER
from utils.observability.logs import quoted

WHITESPACE = b" \t\r\n"
FILE_PART = "image"
"""Name in errors of an image that is a part of a form or the whole body."""
IMAGE_FILE = "base64 of a PNG, JPEG or WebP file"
URLS = ("http://", "https://")


@dataclass(frozen=True)
class ImageSource:
    """An image file, an image id, or both if the id of the file is known."""

    file: bytes | None
    """A PNG, JPEG or WebP file."""
    image_id: str | None
    owner: str = ""
    """Name of the request's API key; cached embeddings are separate per owner."""
    field: str = field(default="input_image", compare=False)
    """Field or part of the request with the image, for error messages."""


def image_source(request: ImageFields, file: bytes | None = None) -> ImageSource:
    """Return the image of a request, owned by the caller: `file`, or the one in the fields.

    The request's `input_image` is set to None.

    Raises:
        InvalidRequest: not exactly one image, no base64, or an empty file.
    """
    if file is not None:
        if request.input_image is not None or request.image_id is not None:
            name = "image_id" if request.input_image is None else "input_image"
            raise invalid(name, "exactly one image", "one in the body as well")
        if not file:
            raise invalid(FILE_PART, "a PNG, JPEG or WebP file", "an empty file")
        return ImageSource(file, None, CALLER.get(), FILE_PART)
    if (request.input_image is None) == (request.image_id is None):
        got = "neither" if request.image_id is None else "both"
        raise invalid("input_image", "exactly one of input_image and image_id", got)
    if request.input_image is None:
        return ImageSource(None, request.image_id, CALLER.get())
    text, request.input_image = request.input_image, None  # frees the text while the request is processed
    if text[:8].lower().startswith(URLS):
        raise invalid("input_image", f"{IMAGE_FILE}; URLs are not fetched", f"the URL {quoted(text, 200)}")
    return ImageSource(decode_base64(text, "input_image", IMAGE_FILE), None, CALLER.get())


def decode_base64(text: str, field: str, expected: str) -> bytes:
    """Decode base64 text with padding, or a URL of the form `data:[<media type>];base64,<base64>`.

    Line breaks and other whitespace, as written by `base64 FILE` and MIME encoders, are accepted. Errors name the field
    and its expected content.

    Raises:
        InvalidRequest: not base64, or empty.
    """
    payload = text
    if text[:5].lower() == "data:":
        header, comma, payload = text.partition(",")
        if not comma or not header.lower().endswith(";base64"):
            raise invalid(field, expected, f"a data URL without ;base64: {quoted(header, 60)}")
    try:
        data = pybase64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        try:
            # Bytes, because `str.translate` takes 0.1 microseconds per character on the event loop.
            data = pybase64.b64decode(payload.encode("ascii").translate(None, WHITESPACE), validate=True)
        except (binascii.Error, ValueError):
            raise invalid(
                field, expected, f"{len(payload)} characters that are not base64: {payload[:24]!r}..."
            ) from None
    if not data:
        raise invalid(field, expected, "an empty string")
    return data
