"""Bytes, changed in the ways that files and messages get damaged, and some that only malice thinks of."""

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
"""What stands in files and bodies where it means something."""
NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
"""At the edges of integer types."""
KINDS = ("flip", "set", "drop", "end", "insert", "repeat", "swap", "splice", "big", "little")


@dataclass(frozen=True)
class Edit:
    """One change."""

    kind: str
    """One of `KINDS`."""
    place: float
    """Where, from 0 for the first byte to 1 for behind the last."""
    value: int
    """What, or how much; not negative."""


def damaged(data: bytes, edits: Iterable[Edit], other: bytes = b"") -> bytes:
    """The data after all edits, one after the other; a splice goes on with the rest of `other`."""
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


def random_edits(random: Random, most: int = 4) -> list[Edit]:
    """Between one and `most` edits; places near the beginning, where headers stand, come more often."""
    return [
        Edit(random.choice(KINDS), random.random() ** random.choice((1, 3)), random.randrange(2**16))
        for _ in range(random.randint(1, most))
    ]


def random_damage(random: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """The data after a few random edits."""
    return damaged(data, random_edits(random), random.choice(others) if others else b"")
