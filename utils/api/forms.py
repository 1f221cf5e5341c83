"""Forms: the parts of a `multipart/form-data` body, within bounds that hold before the parser sees
it.

The parser works byte by byte on what is not the content of a part, and holds the interpreter's lock
meanwhile. So the lines that begin like a boundary are counted first, a mebibyte at a time, and the
parser gets few of them.
"""

from __future__ import annotations

import binascii
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pybase64
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from utils.api.names import unknown_field
from utils.api.requests import MAX_IMAGES
from utils.errors import MalformedForm, invalid
from utils.observability.logs import quoted

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

# It logs each malformed form, with bytes of the request; the error says the same to the caller.
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)

FORM = "multipart/form-data"
FORM_PARTS = ("image", "request")
MAX_PARTS = MAX_IMAGES + 1
"""Maximum number of parts of a form: a full list of images, and the request."""
MAX_CONTENT_TYPE_CHARS = 1000
"""Longest content type of a form, which is parsed; a boundary has at most 70 characters (RFC
2046)."""
MAX_PADDING_BYTES = 100
"""Maximum number of spaces after a boundary."""
PIECE_BYTES = 2**20
PLAIN = (b"binary", b"8bit", b"7bit")
"""Values of Content-Transfer-Encoding that leave a part as it is."""


def form_parts(body: bytes, content_type: str, *, max_images: int = 1) -> dict[str, list[bytes]]:
    """Return the parts `image` and `request` of a `multipart/form-data` body, those that it has.

    Raises:
        MalformedForm: not `multipart/form-data`, or incomplete.
        InvalidRequest: another part, two requests, or more than `max_images` images.
    """
    if len(content_type) > MAX_CONTENT_TYPE_CHARS:
        raise MalformedForm(
            f"a Content-Type of {len(content_type)} characters (at most {MAX_CONTENT_TYPE_CHARS})"
        )
    form = _Form(max_images)
    try:
        boundary = parse_options_header(content_type)[1].get(b"boundary")
        if not boundary:
            raise FormParserError("No boundary given")
        parser = MultipartParser(boundary, form.callbacks())
        _check_boundaries(body, b"--" + boundary)
        for start in range(0, len(body), PIECE_BYTES):
            parser.write(body[start : start + PIECE_BYTES])
    except (FormParserError, binascii.Error) as error:
        raise MalformedForm(str(error)) from None
    if not form.ended:
        raise MalformedForm(f"{len(body)} bytes without its end")
    return form.parts


def _check_boundaries(body: bytes, boundary: bytes) -> None:
    """Check the number of the boundaries at the beginnings of lines, and the spaces after each.

    Raises:
        InvalidRequest: there are more than a form with `MAX_PARTS` parts has.
        MalformedForm: a boundary has more than `MAX_PADDING_BYTES` spaces after it.
    """
    for count, end in enumerate(_boundary_ends(body, boundary), 1):
        if count > MAX_PARTS + 1:  # the last one ends the form
            raise invalid("body", f"at most {MAX_PARTS} parts", "more")
        padding = body[end : end + MAX_PADDING_BYTES + 1]
        if len(padding) > MAX_PADDING_BYTES and not padding.strip(b" \t"):
            raise MalformedForm(f"more than {MAX_PADDING_BYTES} spaces after a boundary")


def _boundary_ends(body: bytes, boundary: bytes) -> Iterator[int]:
    """Yield the position after each boundary that begins a line, or the body."""
    if body.startswith(boundary):
        yield len(boundary)
    line = b"\r\n" + boundary
    start = 0
    while start < len(body):
        # A boundary may begin in this piece and end in the next one.
        stop = start + PIECE_BYTES + len(line) - 1
        position = body.find(line, start, stop)
        if position < 0:
            start += PIECE_BYTES
        else:
            start = position + len(line)
            yield start


class _Form:
    """What the parser of a form has found so far."""

    def __init__(self, max_images: int) -> None:
        self.parts: dict[str, list[bytes]] = {}
        self.ended = False
        self._max_images = max_images
        self._headers: dict[bytes, bytes] = {}
        self._header_name: list[bytes] = []
        self._header_value: list[bytes] = []
        self._part = ""
        self._content: list[bytes] = []

    def callbacks(self) -> MultipartCallbacks:
        """Return the parser's callbacks. A name, a value or a content may come in several
        pieces.
        """
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": lambda data, start, end: self._header_name.append(data[start:end]),
            "on_header_value": lambda data, start, end: self._header_value.append(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_content,
            "on_part_data": lambda data, start, end: self._content.append(data[start:end]),
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _end_header(self) -> None:
        self._headers[b"".join(self._header_name).lower()] = b"".join(self._header_value).strip(
            b" \t"
        )
        self._header_name.clear()
        self._header_value.clear()

    def _begin_content(self) -> None:
        """Check the name and the number of a part, before its content."""
        disposition = self._headers.get(b"content-disposition", b"")
        name = parse_options_header(disposition)[1].get(b"name")
        if name is None:
            raise FormParserError(
                "Field name not found in Content-Disposition:"
                f" {quoted(disposition.decode('latin-1'))}"
            )
        part = self._part = name.decode("utf-8", "replace")
        if part not in FORM_PARTS:
            raise unknown_field(part, FORM_PARTS, "part")
        earlier = len(self.parts.get(part, ()))
        if part == "image" and self._max_images > 1:
            if earlier == self._max_images:
                raise invalid(part, f"at most {self._max_images} files", "more")
        elif earlier:
            raise invalid(part, "one part of this name", "two")

    def _end_part(self) -> None:
        content = b"".join(self._content)
        self._content.clear()
        encoding = self._headers.get(b"content-transfer-encoding", b"binary").lower()
        if encoding == b"base64":
            content = pybase64.b64decode(content)
        elif encoding not in PLAIN:
            got = quoted(encoding.decode("latin-1"))
            raise FormParserError(
                f"the Content-Transfer-Encoding {got} in place of binary, 8bit, 7bit or base64"
            )
        self.parts.setdefault(self._part, []).append(content)

    def _end(self) -> None:
        self.ended = True
