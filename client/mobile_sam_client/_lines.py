"""Lines out of chunks."""

from __future__ import annotations


class Lines:
    """Puts lines together from the chunks in which they arrive. A line ends with a newline and nothing else does."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that a chunk completes, without their ends; empty ones are left out."""
        first, *others = chunk.split(b"\n")
        self._begun.append(first)
        if not others:
            return []
        ended = [b"".join(self._begun), *others[:-1]]
        self._begun = others[-1:]
        return [line for line in ended if line.strip()]
