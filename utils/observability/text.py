"""Escaping of untrusted text for log lines and problem documents: one line, printable, bounded."""


def printable(text: str) -> str:
    r"""Replace unprintable characters by escapes such as `\n`, `\x1b`, `\u202e` or `\ud800`.

    Unprintable are control characters, line and paragraph separators, bidirectional overrides and other formatting
    characters, lone surrogates, unassigned and private-use code points, and all spaces but the ASCII one.
    """
    return text if text.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown(text: str, limit: int = 80) -> str:
    """Return the printable text, or its start and length if it exceeds `limit` characters."""
    return _bounded(printable(text[:limit]), text, limit)


def quoted(text: str, limit: int = 80) -> str:
    """Return the text in quotation marks, like `repr`, bounded like `shown`."""
    return _bounded(repr(text[:limit]), text, limit)


def _bounded(safe: str, text: str, limit: int) -> str:
    quotes = 2
    if len(text) <= limit and len(safe) <= limit + quotes:
        return safe
    return f"{safe[:limit]}... ({len(text)} characters)"
