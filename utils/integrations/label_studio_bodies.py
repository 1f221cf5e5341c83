"""Bodies of Label Studio without the numbers of its brush masks and polygons: often millions,
and not read.
"""

import re

NAMES = (b'"rle"', b'"points"')
"""Names of members with numbers.

They cannot begin in a JSON string, where quotation marks are escaped, but at an escaped one in a
name such as `"a\\"rle"`, which is not read either.
"""
ARRAY = re.compile(rb"\s{0,8}:\s{0,8}\[")
NUMBER_BYTES = b"0123456789+-.eE, \t\r\n[]"
PIECE_BYTES = 2**20
"""Bytes that are checked at a time, while the interpreter's lock is held."""


def without_numbers(body: bytes) -> bytes:
    """Return a JSON body in which arrays of only numbers, of members named as in `NAMES`, are
    empty.
    """
    for name in NAMES:
        body = _without(body, name)
    return body


def _without(body: bytes, name: bytes) -> bytes:
    pieces, copied = list[bytes](), 0
    position = body.find(name)
    while position >= 0:
        position += len(name)
        array = ARRAY.match(body, position)
        end = _end_of_numbers(body, array.end() - 1) if array else 0
        if array and end:
            pieces += body[copied : array.end()], b"]"
            copied = position = end
        position = body.find(name, position)
    return b"".join([*pieces, body[copied:]]) if pieces else body


def _end_of_numbers(body: bytes, start: int) -> int:
    """Return the end of an array that starts here, if it has only numbers, in arrays or not;
    else 0.
    """
    # After a member comes the name of another one, or the end of its object.
    stop = body.find(b'"', start)
    stop = len(body) if stop < 0 else stop
    brace = body.find(b"}", start, stop)
    end = body.rfind(b"]", start, stop if brace < 0 else brace) + 1
    opened = 0
    for position in range(start, end, PIECE_BYTES):
        piece = body[position : min(position + PIECE_BYTES, end)]
        opened += piece.count(b"[") - piece.count(b"]")
        if piece.translate(None, NUMBER_BYTES):
            return 0
    return 0 if opened else end
