"""Detection of forged log lines, and the requests that try to forge them."""

import pytest

from tests.chaos.scenarios import forging
from tests.fuzz.hostile_text import FORGED, MARK, hostile_texts

GOOD = (
    b"2026-11-22T07:15:57+0000 [INFO] [triton watchdog] Triton is ready\n"
    b"2026-11-22T07:15:58+0000 [INFO] [api_server:mobile_sam:1] 127.0.0.2:42429 (scheme=http) 12ms\n"
    b'E1122 07:15:52.157318 18709 server.cc:241] "CudaDriverHelper has not been initialized."\n'
    b'{"time":"2026-11-22T07:15:58.000Z","level":"info","message":"x\\n\\u001b"}\n'
)


def test_count_forged_is_zero_for_genuine_lines():
    assert not +forging.count_forged(GOOD)


@pytest.mark.parametrize("fake", FORGED)
def test_count_forged_counts_each_forged_line(fake: str):
    assert forging.count_forged(GOOD + fake.partition("\n")[0].encode() + b"\n")["lines"] == 1


@pytest.mark.parametrize(
    "text",
    [b"\r", b"\x1b", "\x85".encode(), "\u2028".encode(), "\u202e".encode(), b"\x00", b"\xff"],
    ids=["CR", "ESC", "NEL", "LS", "RLO", "NUL", "bad UTF-8"],
)
def test_count_forged_counts_each_unprintable_character(text: bytes):
    assert forging.count_forged(GOOD[:-1] + b" x" + text + b"y\n") == {"characters": 1}


def test_count_forged_finds_every_unescaped_hostile_text():
    for text in hostile_texts(1000, seed=0):
        line = GOOD.splitlines()[0] + b" got " + text.encode("utf-8", "surrogatepass") + b"\n"
        assert forging.count_forged(line).total(), ascii(text)


def test_attempts_are_reproducible_and_carry_the_mark_in_every_field_and_header():
    first, again = (list(forging.attempts(3, 5000)) for _ in range(2))
    assert first == again
    assert all(MARK.encode() in data for data in first)
    data = b"".join(first)
    assert all(f'"{name}"'.encode() in data for name in forging.FIELDS)
    assert all(b"\r\n" + name.encode() + b": " in data for name in forging.HEADERS)
