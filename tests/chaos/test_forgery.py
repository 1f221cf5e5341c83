"""Detection of forged log lines, and the requests that try to forge them."""

from __future__ import annotations

import random

import pytest

from tests.chaos import forgery

GOOD = (
    b"2026-11-22T07:15:57+0000 [INFO] [triton watchdog] Triton is ready\n"
    b"2026-11-22T07:15:58+0000 [INFO] [api_server:mobile_sam:1] 127.0.0.2:42429 (scheme=http) 12ms\n"
    b'E1122 07:15:52.157318 18709 server.cc:241] "CudaDriverHelper has not been initialized."\n'
    b'{"time":"2026-11-22T07:15:58.000Z","level":"info","message":"x\\n\\u001b"}\n'
)


def test_count_forged_is_zero_for_genuine_lines():
    assert not +forgery.count_forged(GOOD)


@pytest.mark.parametrize("fake", forgery.FAKES)
def test_count_forged_counts_each_forged_line(fake: str):
    assert forgery.count_forged(GOOD + fake.encode() + b"\n")["lines"] == 1


@pytest.mark.parametrize(
    "text",
    ["\r", "\x1b", "\x85", "\u2028", "\u202e", "\x00", b"\xff"],
    ids=["CR", "ESC", "NEL", "LS", "RLO", "NUL", "bad UTF-8"],
)
def test_count_forged_counts_each_unprintable_character(text: str | bytes):
    data = text if isinstance(text, bytes) else text.encode()
    assert forgery.count_forged(GOOD[:-1] + b" x" + data + b"y\n") == {"characters": 1}


def test_count_forged_finds_every_unescaped_hostile_text():
    draw = random.Random(0)
    for _ in range(1000):
        text = forgery.hostile_text(draw)
        line = GOOD.splitlines()[0] + b" got " + text.encode("utf-8", "surrogatepass") + b"\n"
        assert forgery.count_forged(line).total(), ascii(text)


def test_attempts_are_reproducible_and_carry_the_mark():
    first, again = (list(forgery.attempts(3, 500)) for _ in range(2))
    assert first == again
    assert first != list(forgery.attempts(4, 500))
    assert all(forgery.MARK.encode() in data for data in first)


def test_attempts_reach_every_field_and_header():
    data = b"".join(forgery.attempts(0, 5000))
    for name in forgery.FIELDS:
        assert f'"{name}"'.encode() in data
    for name in forgery.HEADERS:
        assert b"\r\n" + name.encode() + b": x" in data
