"""Large JSON bodies: long texts in base64, from which escapes are removed, and a bounded number of
other bytes.

A JSON parser holds the interpreter's lock, and so the event loop, for the whole body: a millisecond
for a megabyte of plain text, and up to ten for one of escapes, other characters or names. This is
for a thread: it works in pieces.
"""

import re

from utils.errors import invalid

LARGE_BYTES, MAX_OTHER_BYTES = 2**21, 2**22
"""Bytes of a body that is checked, and maximum number of its bytes outside of long texts in
base64."""
LONG_BYTES = 4096
BASE64 = re.compile(rb"(?:data:[^,]{0,100},)?(?:[A-Za-z0-9+/]|\\[/nrt]){64}", re.IGNORECASE)
"""Beginning of a long text in base64, as PHP (`\\/`) and MIME encoders (`\\n`) write it as well."""
ESCAPES = ((rb"\/", b"/"), (rb"\n", b""), (rb"\r", b""), (rb"\t", b""))
MAX_QUOTES = 200_000
PIECE_BYTES = 2**18
"""Bytes of a text that are read at a time, about a millisecond in which the interpreter's lock
is held."""


def lightened(body: bytes) -> bytes:
    """Return a JSON body whose long texts in base64 have neither escapes nor white space; small
    bodies as they are.

    Raises:
        InvalidRequest: the body is large, and has more than `MAX_OTHER_BYTES` other bytes, or too
            many texts.
    """
    if len(body) <= LARGE_BYTES:
        return body
    pieces_before: list[bytes] = []
    copied, other, quotes = 0, len(body), 0
    end = body.find(b'"')
    while end >= 0:
        # What is not a text does not begin like base64: it has a comma or a colon first.
        start, end = end + 1, body.find(b'"', end + 1)
        quotes += 1
        if quotes > MAX_QUOTES:
            raise invalid("body", f"at most {MAX_QUOTES // 2} names and texts", "more")
        if end - start >= LONG_BYTES and BASE64.match(body, start, end):
            pieces = _plain_pieces(body, start, end)
            if pieces is not None:
                other -= end - start
                if sum(map(len, pieces)) < end - start:
                    pieces_before += body[copied:start], *pieces
                    copied = end
    if other > MAX_OTHER_BYTES:
        raise invalid(
            "body", f"at most {MAX_OTHER_BYTES} bytes beside images in base64", f"{other}"
        )
    return b"".join([*pieces_before, body[copied:]]) if pieces_before else body


def _plain_pieces(body: bytes, start: int, end: int) -> list[bytes] | None:
    """Return a text in pieces without escapes and spaces; None if it has other escapes or
    characters.
    """
    pieces = []
    while start < end:
        stop = min(start + PIECE_BYTES, end)
        if body[stop - 1 : stop] == b"\\":
            stop += 1
        piece, start = body[start:stop].replace(b" ", b""), stop
        for escape, character in ESCAPES:
            # The search for one character is fast; for two it stops at each last character, which
            # base64 has many of.
            if b"\\" not in piece:
                break
            piece = piece.replace(escape, character)
        if b"\\" in piece or not piece.isascii():
            return None
        pieces.append(piece)
    return pieces
