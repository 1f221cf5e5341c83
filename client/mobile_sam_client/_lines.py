"""Splitting of streamed chunks into lines."""

from __future__ import annotations


class LineBuffer:
    """Assembles lines from chunks. Only `\\n` ends a line."""

    def __init__(self) -> None:
        """Create an empty buffer."""
        self._partial: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the non-empty lines completed by a chunk, without line ends."""
        first, *others = chunk.split(b"\n")
        self._partial.append(first)
        if not others:
            return []
        complete = [b"".join(self._partial), *others[:-1]]
        self._partial = others[-1:]
        return [line for line in complete if line.strip()]
