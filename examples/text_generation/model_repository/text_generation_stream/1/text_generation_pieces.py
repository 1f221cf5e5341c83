"""Incremental decoding of tokens to text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

CONTEXT_TOKENS = 5
"""Earlier tokens decoded with new ones, because many tokenizers drop the space of the first token."""
INCOMPLETE_CHARACTER = "\ufffd"
"""Replacement character of invalid UTF-8, such as a character whose last bytes are in the next token."""


class Pieces:
    """Streamer for `generate` that sends text piece by piece; the pieces together are the text of all tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str], send: Callable[[str], None]) -> None:
        """Start a text.

        Args:
            decode: converts tokens to text.
            send: called with each piece.
        """
        self._decode, self._send = decode, send
        self._tokens: list[int] = []
        self._sent: int | None = None
        """Number of tokens already sent as text; None before the prompt."""

    def put(self, tokens: Any) -> None:
        """Receive an array with the prompt in the first call, then with one token per call."""
        self._tokens += tokens.flatten().tolist()
        if self._sent is None:
            self._tokens = self._tokens[-CONTEXT_TOKENS:]
        elif (piece := self._piece()) and not piece.endswith(INCOMPLETE_CHARACTER):
            self._send(piece)
            # The tokens just sent become the context.
            self._tokens = self._tokens[self._sent :]
        else:
            return
        self._sent = len(self._tokens)

    def end(self) -> None:
        """Send the remaining text."""
        if piece := self._piece():
            self._send(piece)

    def _piece(self) -> str:
        sent = self._decode(self._tokens[: self._sent])
        return self._decode(self._tokens)[len(sent) :]
