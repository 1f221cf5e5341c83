"""Text from files and servers, for messages: printable, on one line, and short."""

MAX_NAME_CHARACTERS = 120
MAX_LINE_CHARACTERS = 2000


def printable(text: str) -> str:
    r"""Replace unprintable characters by escapes such as `\n`, `\x1b` or `\u202e`."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shown(name: str, limit: int = MAX_NAME_CHARACTERS) -> str:
    """Return the start of a name, printable; dots show that it goes on."""
    safe = printable(name[: limit + 1])
    return safe if len(safe) <= limit else f"{safe[:limit]}..."
