"""Incremental decoding of tokens to text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

CONTEXT_TOKENS = 5
"""Earlier tokens decoded with new ones, because many tokenizers drop the space of the first token."""
INCOMPLETE_CHARACTER = "\ufffd"
"""Replacement character of invalid UTF-8, such as a character whose last bytes are in the next token."""


class Pieces:
    """Decodes tokens one by one; the pieces together are the text of all tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str], prompt: Sequence[int]) -> None:
        """Start after a prompt.

        Args:
            decode: converts tokens to text.
            prompt: tokens of the prompt.
        """
        self._decode = decode
        self._tokens = list(prompt[-CONTEXT_TOKENS:])
        self._returned = len(self._tokens)
        """Number of tokens already returned as text."""

    def add(self, token: int) -> str:
        """Add a token and return the new text; empty while a character is incomplete."""
        self._tokens.append(token)
        new = self._new()
        if not new or new.endswith(INCOMPLETE_CHARACTER):
            return ""
        # The tokens just returned become the context.
        self._tokens = self._tokens[self._returned :]
        self._returned = len(self._tokens)
        return new

    def end(self) -> str:
        """Return the remaining text."""
        return self._new()

    def _new(self) -> str:
        returned = self._decode(self._tokens[: self._returned])
        return self._decode(self._tokens)[len(returned) :]
