"""Splitting of chunks into lines."""

from __future__ import annotations

import pytest

from mobile_sam_client._lines import LineBuffer

TEXT = 'one\n\n{"a": "\u2028 \x85"}\nthree\n'.encode()
EXPECTED = [b"one", '{"a": "\u2028 \x85"}'.encode(), b"three"]


@pytest.mark.parametrize("size", range(1, len(TEXT) + 1))
def test_lines_do_not_depend_on_chunk_size(size):
    lines = LineBuffer()
    chunks = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    assert [line for chunk in chunks for line in lines.feed(chunk)] == EXPECTED


def test_incomplete_line_is_kept_back():
    lines = LineBuffer()
    assert lines.feed(b"one\ntw") == [b"one"]
    assert lines.feed(b"") == []
    assert lines.feed(b"o\n") == [b"two"]
