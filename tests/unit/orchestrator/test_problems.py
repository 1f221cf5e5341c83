"""Texts for Triton's log."""

from orchestrator.problems import MAX_LINE, one_line
from tests.fuzz.hostile_text import HOSTILE, hostile_texts


def test_one_line_escapes_hostile_text():
    for text in [*HOSTILE, *hostile_texts(10_000, seed=6)]:
        line = one_line(f"mobile_sam: ValueError: {text}")
        assert line.startswith("mobile_sam: ValueError: ")
        assert line.isascii()
        assert line.isprintable()
        assert len(line) <= MAX_LINE
