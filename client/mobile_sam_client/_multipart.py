"""The parts of a `multipart/form-data` answer."""

from __future__ import annotations

from email.message import Message
from email.parser import BytesParser

LINE_END = b"\r\n"


def parts(content_type: str, body: bytes) -> dict[str, bytes]:
    """The parts by name, in the order in which they came.

    Args:
        content_type: the header, which holds the boundary.
        body: all of it.

    Raises:
        ValueError: not such a body, or not all of it.
    """
    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary()
    if header.get_content_type() != "multipart/form-data" or not boundary:
        raise ValueError(f"expected multipart/form-data with a boundary, got {content_type or 'no Content-Type'}")
    # Not by `email`'s own reading of multipart, which looks for the ends of lines in pictures.
    preamble, *pieces = (LINE_END + body).split(LINE_END + b"--" + boundary.encode())
    if preamble or not pieces or not pieces[-1].startswith(b"--"):
        raise ValueError(f"expected a multipart body that ends, got {len(body)} bytes without an end")
    return dict(_part(piece) for piece in pieces[:-1])


def _part(piece: bytes) -> tuple[str, bytes]:
    """Name and data of what stands between two boundaries."""
    headers, blank_line, data = piece.removeprefix(LINE_END).partition(2 * LINE_END)
    name = BytesParser().parsebytes(headers).get_param("name", header="Content-Disposition")
    if not blank_line or not isinstance(name, str):
        raise ValueError("expected parts with a name, got one without")
    return name, data
