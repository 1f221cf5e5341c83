"""Text that forges or hides log lines, or breaks programs that read or write logs."""

from collections.abc import Iterator
from random import Random

MARK = "forged-7c1f"
"""Part of each text: a log line that begins with it, or with a level and it, is forged."""
LINE_ENDS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""Line ends for `str.splitlines`, terminals and log collectors."""
CONTROLS = ("\0", "\x07", "\x08", "\x1b[2J\x1b[31m", "\x1b]0;title\x07", "\x7f", "\x9b31m", "\x90")
FORMATTING = (
    "\u200b",
    "\u200e",
    "\u202a",
    "\u202e",
    "\u2066",
    "\u2069",
    "\ufeff",
    "\u00ad",
    "\U000e0041",
    "\u3164",
)
ODD = (
    "\ud800",
    "\udfff",
    "\ud83d",
    "\udcff",
    "\ue000",
    "\uffff",
    "\U0010ffff",
    "\u0378",
    "\xa0",
    "\u0301" * 20,
)
TEMPLATES = (
    *(
        "%s%s%s%n",
        "%(message)s",
        "{record.msg}",
        "{0.__class__}",
        "${jndi:ldap://a}",
        "\\n",
        "\\x1b",
        "%0a",
        '"}',
    ),
)
FORGED = (
    f"[ERROR] {MARK}",
    f"2026-01-01T00:00:00+0000 [INFO] [api_server] {MARK}",
    f"E0101 00:00:00.000000 1 server.cc:1] {MARK}",
    f'{{"level":"error","message":"{MARK}"}}',
    f"Traceback ({MARK}):\n  File {MARK}",
    f"{MARK}: an exception",
)
"""Starts of lines that look like the service's own log."""
BEGINNINGS = tuple(text.splitlines()[0] for text in FORGED)
PIECES = (*LINE_ENDS, *CONTROLS, *FORMATTING, *ODD, *TEMPLATES)
HOSTILE = tuple(f"x{piece}{FORGED[number % len(FORGED)]}" for number, piece in enumerate(PIECES))
"""One text per piece."""


def hostile_text(draw: Random) -> str:
    """Return a text of up to a few hundred characters, or of several thousand, with a line break
    and a forged line.
    """
    pieces = draw.choices((*PIECES, *FORGED, "x", " ", "\u00e9"), k=draw.randint(1, 12))
    pieces.insert(draw.randrange(len(pieces) + 1), draw.choice(LINE_ENDS) + draw.choice(FORGED))
    return "".join(pieces) * (draw.randint(10, 40) if draw.random() < 0.02 else 1)


def hostile_texts(count: int, seed: int) -> Iterator[str]:
    """Yield reproducible texts."""
    draw = Random(seed)
    return (hostile_text(draw) for _ in range(count))


def is_forged(log: str) -> bool:
    """Return whether a log has a forged line or an unprintable character."""
    return any(line.startswith(BEGINNINGS) or not line.isprintable() for line in log.split("\n"))
