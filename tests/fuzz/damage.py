"""Mutations of bytes: accidental damage and malicious changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

TOKENS = (
    b"\0",
    b"\xff",
    b"\0" * 16,
    b"\xff" * 16,
    b"\xff\xd8\xff",
    b"\xff\xd9",
    b"\xff\xda",
    b"\xff\xe1",
    b"Exif\0\0II*\0\x08\0\0\0",
    b"IHDR",
    b"IDAT",
    b"IEND",
    b"acTL",
    b"fcTL",
    b"iCCP",
    b"eXIf",
    b"tRNS",
    b"RIFF",
    b"VP8X",
    b"ANMF",
    b"\\u0000",
    b"\\ud800",
    b"\xc3\x28",
    b"\xef\xbb\xbf",
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e999",
    b"9" * 25,
    b"null",
    b"true",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b'"',
    b"\\",
)
"""Byte strings with a meaning in images or JSON."""
NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
"""Limits of integer types."""
KINDS = ("flip", "set", "drop", "end", "insert", "repeat", "swap", "splice", "big", "little")


@dataclass(frozen=True)
class Edit:
    """One mutation."""

    kind: str
    """One of `KINDS`."""
    place: float
    """Position, from 0 for the first byte to 1 for the end."""
    value: int
    """Non-negative parameter of the mutation."""


def damaged(data: bytes, edits: Iterable[Edit], other: bytes = b"") -> bytes:
    """Apply edits in order; a splice continues with the rest of `other`."""
    for edit in edits:
        data = _edited(data, edit, other)
    return data


def _edited(data: bytes, edit: Edit, other: bytes) -> bytes:
    place = min(int(edit.place * len(data)), len(data))
    before, rest, value = data[:place], data[place:], edit.value
    if edit.kind == "end":
        return before
    if edit.kind == "insert":
        return before + TOKENS[value % len(TOKENS)] + rest
    if edit.kind == "splice":
        return before + other[int(edit.place * len(other)) :]
    if edit.kind == "drop":
        return before + rest[1 + value % 64 :]
    if edit.kind == "repeat":
        return before + rest[: 1 + value % 64] * (2 + value % 7) + rest[1 + value % 64 :]
    if edit.kind == "swap":
        size = 1 + value % 16
        return before + rest[size : 2 * size] + rest[:size] + rest[2 * size :]
    if edit.kind in {"big", "little"}:
        size = (1, 2, 4)[value % 3]
        number: int = NUMBERS[value % len(NUMBERS)] % 2 ** (8 * size)
        return before + number.to_bytes(size, "big" if edit.kind == "big" else "little") + rest[size:]
    if not rest:
        return data
    byte = rest[0] ^ (1 << value % 8) if edit.kind == "flip" else value % 256
    return before + bytes([byte]) + rest[1:]


def random_edits(random: Random, max_edits: int = 4) -> list[Edit]:
    """Return random edits, more often near the beginning, where the headers are."""
    return [
        Edit(random.choice(KINDS), random.random() ** random.choice((1, 3)), random.randrange(2**16))
        for _ in range(random.randint(1, max_edits))
    ]


def random_damage(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Apply a few random edits."""
    return damaged(data, random_edits(random), random.choice(others) if others else b"")
