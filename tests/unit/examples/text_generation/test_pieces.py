"""Incremental decoding of tokens."""

from __future__ import annotations

import pytest

from tests.unit.examples.text_generation.modules import load

Pieces = load("text_generation_pieces").Pieces


def decode_bytes(tokens) -> str:
    """Decode the tokens of a byte tokenizer."""
    return bytes(tokens).decode(errors="replace")


def decode_words(tokens) -> str:
    """Decode the tokens of a word tokenizer that drops the space of the first word."""
    return "".join(f" word{token}" for token in tokens).removeprefix(" ")


def pieces_of(decode, prompt, tokens) -> list[str]:
    """Return the piece of each token, and the remaining text."""
    pieces = Pieces(decode, prompt)
    return [*(pieces.add(token) for token in tokens), pieces.end()]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        pytest.param("ab", ["a", "b", ""], id="one byte per character"),
        pytest.param("é🙂", ["", "é", "", "", "", "🙂", ""], id="several bytes per character"),
    ],
)
def test_character_is_returned_with_its_last_byte(text, pieces):
    assert pieces_of(decode_bytes, b"so far: ", text.encode()) == pieces


def test_incomplete_character_at_the_end_is_returned():
    assert pieces_of(decode_bytes, b"", b"a\xc3") == ["a", "", "\ufffd"]


@pytest.mark.parametrize("prompt", [[1], [1, 2, 3, 4, 5, 6, 7]], ids=["short", "longer than the context"])
def test_first_word_after_the_prompt_keeps_its_space(prompt):
    assert pieces_of(decode_words, prompt, [8, 9]) == [" word8", " word9", ""]


def test_token_without_text_gives_an_empty_piece():
    def decode(tokens) -> str:
        return "".join("" if token == 0 else str(token) for token in tokens)

    assert pieces_of(decode, [1], [0, 2, 0]) == ["", "2", "", ""]
