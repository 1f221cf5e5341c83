"""Parsing of `multipart/form-data` answers."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser

LINE_END = b"\r\n"


def parse_multipart(content_type: str, body: bytes) -> dict[str, bytes]:
    """Return the parts of a body by name, in their original order.

    Args:
        content_type: `Content-Type` header, which holds the boundary.
        body: the whole body.

    Raises:
        ValueError: the body is not multipart/form-data, or is truncated.
    """
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary()
    if header.get_content_type() != "multipart/form-data" or not boundary:
        raise ValueError(f"expected multipart/form-data with a boundary, got {content_type or 'no Content-Type'}")
    # Not parsed by `email`, which would search the pictures for line ends.
    preamble, *pieces = (LINE_END + body).split(LINE_END + b"--" + boundary.encode())
    if preamble or not pieces or not pieces[-1].startswith(b"--"):
        raise ValueError(f"expected a multipart body with a closing boundary, got {len(body)} bytes without one")
    return dict(_part(piece) for piece in pieces[:-1])


def _part(piece: bytes) -> tuple[str, bytes]:
    """Return the name and data of the bytes between two boundaries."""
    headers, blank_line, data = piece.removeprefix(LINE_END).partition(2 * LINE_END)
    name = BytesParser().parsebytes(headers).get_param("name", header="Content-Disposition")
    if not blank_line or not isinstance(name, str):
        raise ValueError("a part of the multipart body has no name")
    return name, data
