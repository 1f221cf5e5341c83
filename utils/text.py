"""Text from outside, made safe to stand in a log line or a problem document: one line, printable, bounded."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Replace each character that does not print by its escape, such as `\n`, `\x1b`, `\u202e` or `\ud800`.

    Those are control characters, line and paragraph separators, bidirectional overrides and other formatting
    characters, lone surrogates, unassigned and private-use code points, and every space but the plain one.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown(text: str, limit: int = 80) -> str:
    """Return the text printable, and where that is longer than `limit` characters, its beginning and its length."""
    return _bounded(printable(text[:limit]), text, limit)


def quoted(text: str, limit: int = 80) -> str:
    """Return the text in quotation marks, as `repr` writes it, bounded as `shown` does."""
    return _bounded(repr(text[:limit]), text, limit)


def _bounded(safe: str, text: str, limit: int) -> str:
    quotes = 2
    if len(text) <= limit and len(safe) <= limit + quotes:
        return safe
    return f"{safe[:limit]}... ({len(text)} characters)"
