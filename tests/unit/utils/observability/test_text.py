"""Escaping and bounding of untrusted text."""

import pytest

from tests.fuzz.hostile_text import HOSTILE, hostile_texts
from utils.observability.text import printable, quoted, shown


def test_plain_text_is_unchanged():
    text = "plain text, \u00e9\u4e2d\U0001f600, with a \\ and 'quotes'"
    assert printable(text) == shown(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\n[ERROR] forged", "x\\n[ERROR] forged"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\r\x85\u2028\u2029", "\\r\\x85\\u2028\\u2029"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
        ("\u200b\u00a0\ufeff", "\\u200b\\xa0\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
    ],
    ids=ascii,
)
def test_unprintable_characters_are_escaped(text, expected):
    assert printable(text) == shown(text) == expected


@pytest.mark.parametrize("make", [printable, shown, quoted])
def test_hostile_text_becomes_one_printable_line(make):
    for text in [*HOSTILE, *hostile_texts(10_000, seed=1)]:
        safe = make(text)
        assert safe.isprintable()
        assert len(safe.splitlines()) <= 1
        safe.encode()


@pytest.mark.parametrize("make", [shown, quoted])
@pytest.mark.parametrize("text", ["x" * 500, "\u202e" * 500, "\n" * 81])
def test_long_text_is_cut_and_its_length_shown(make, text):
    assert len(make(text)) <= 80 + len("... (500 characters)")
    assert make(text).endswith(f"... ({len(text)} characters)")


def test_short_text_with_long_escapes_is_cut():
    assert shown("\u202e" * 80) == "\\u202e" * 13 + "\\u... (80 characters)"


def test_quoted_text_is_in_quotation_marks():
    assert quoted("it's \n") == '"it\'s \\n"'
