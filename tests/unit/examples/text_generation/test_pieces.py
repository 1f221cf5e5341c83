"""Tokens become text as soon as it is certain, and no letter of it is lost or told twice."""

from __future__ import annotations

import pytest

from tests.unit.examples.text_generation.modules import load

Pieces = load("text_generation_pieces").Pieces


def of_bytes(tokens) -> str:
    """Of a tokenizer whose tokens are bytes."""
    return bytes(tokens).decode(errors="replace")


def of_words(tokens) -> str:
    """Of a tokenizer whose tokens are words with a space before, which the first of a text loses."""
    return "".join(f" word{token}" for token in tokens).removeprefix(" ")


def written(decode, prompt, tokens) -> list[str]:
    """The pieces of tokens, one for each, and the last."""
    pieces = Pieces(decode, prompt)
    return [*(pieces.add(token) for token in tokens), pieces.end()]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        pytest.param("ab", ["a", "b", ""], id="a byte a letter"),
        pytest.param("é🙂", ["", "é", "", "", "", "🙂", ""], id="several bytes a letter"),
    ],
)
def test_a_letter_is_told_when_its_last_byte_has_come(text, pieces):
    assert written(of_bytes, b"so far: ", text.encode()) == pieces


def test_half_a_letter_at_the_end_is_not_kept_back():
    assert written(of_bytes, b"", b"a\xc3") == ["a", "", "\ufffd"]


@pytest.mark.parametrize("prompt", [[1], [1, 2, 3, 4, 5, 6, 7]], ids=["a short one", "a longer one than is looked at"])
def test_the_first_word_after_the_prompt_keeps_its_space(prompt):
    assert written(of_words, prompt, [8, 9]) == [" word8", " word9", ""]


def test_a_token_without_text_is_no_piece():
    def decode(tokens) -> str:
        return "".join("" if token == 0 else str(token) for token in tokens)

    assert written(decode, [1], [0, 2, 0]) == ["", "2", "", ""]
