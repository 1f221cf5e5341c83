"""The text of tokens, as soon as it is certain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BEFORE = 5
"""Tokens of the text so far that are decoded with the new ones: many tokenizers drop the space of the first."""
HALF_A_CHARACTER = "\ufffd"
"""What bytes become that are no UTF-8, as those of a character whose other bytes are in the next token."""


class Pieces:
    """Turns tokens into text one by one; all pieces together are the text of all tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int]) -> None:
        """Begin after a text.

        Args:
            decode: the text of tokens.
            prompt: the tokens of the text so far.
        """
        self._decode = decode
        self._tokens = list(prompt[-BEFORE:])
        self._known = len(self._tokens)
        """How many of the tokens have been told as text."""

    def add(self, token: int) -> str:
        """The text that is certain now; empty while a character is not complete."""
        self._tokens.append(token)
        new = self._new()
        if not new or new.endswith(HALF_A_CHARACTER):
            return ""
        # From now on the tokens just told are what stands before.
        self._tokens = self._tokens[self._known :]
        self._known = len(self._tokens)
        return new

    def end(self) -> str:
        """What is left when no token follows."""
        return self._new()

    def _new(self) -> str:
        told = self._decode(self._tokens[: self._known])
        return self._decode(self._tokens)[len(told) :]
