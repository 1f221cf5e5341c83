"""Embeddings in Redis: sharing, and failures that never fail a request."""

import signal
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from harness import wait_until
from orchestrator import redis_tier
from orchestrator.cache import Layout
from orchestrator.redis_tier import RedisTier
from tests.redis_server import RedisServer, redis_server
from tests.unit.orchestrator.conftest import WEIGHTS

PREFIX = f"mobile-sam:{WEIGHTS[:16]}:"


@pytest.fixture
def server(tmp_path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
def open_tier(server, warnings, monkeypatch) -> Callable[..., RedisTier]:
    """Return a function that opens a tier with long timeouts."""
    for name in ("CONNECT_TIMEOUT_S", "TRANSFER_TIMEOUT_S", "ANSWER_TIMEOUT_S"):
        monkeypatch.setattr(redis_tier, name, 60)
    return lambda fingerprint=WEIGHTS: RedisTier(server.url, Layout(fingerprint), warnings.append)


def test_entry_is_visible_to_other_machines_with_the_same_weights_for_a_time(
    server, open_tier, entries, warnings
):
    entry = entries.make(1, file_bytes=100_000)
    open_tier().put(entries.name(1), entry)
    open_tier("b" * 64).put(entries.name(1), entries.make(2))
    wait_until(lambda: len(server.names()) == 2)
    assert entries.same(open_tier().get(entries.name(1)), entry)
    assert entries.same(open_tier("b" * 64).get(entries.name(1)), entries.make(2))
    assert open_tier("c" * 64).get(entries.name(1)) is None
    assert open_tier().get(entries.name(2)) is None
    with server.client() as client:
        assert 0 < client.ttl(PREFIX + entries.name(1)) <= redis_tier.ENTRY_TTL_S
    assert warnings == []


def test_damaged_value_is_not_served_and_can_be_overwritten(server, open_tier, entries, warnings):
    with server.client() as client:
        client.set(PREFIX + entries.name(1), entries.file(1)[:-1])
    tier = open_tier()
    assert tier.get(entries.name(1)) is None
    assert len(warnings) == 1
    assert entries.name(1) in warnings[0]
    tier.put(entries.name(1), entries.make(1))
    wait_until(lambda: entries.same(tier.get(entries.name(1)), entries.make(1)))


POISONS = {
    "a list": lambda client, name, file: client.rpush(name, file),
    "a hash": lambda client, name, file: client.hset(name, "value", file),
    "too short": lambda client, name, file: client.set(name, file[:-1]),
    "too long": lambda client, name, file: client.set(name, file + b"\0"),
    "a header alone": lambda client, name, file: client.set(name, file[:64]),
    "text": lambda client, name, file: client.set(name, "no entry"),
    "one bit": lambda client, name, file: client.set(
        name, file[:99] + bytes([file[99] ^ 1]) + file[100:]
    ),
    "other weights": lambda client, name, file: client.set(
        name, file.replace(b"f" * 16, b"e" * 16, 1)
    ),
}


@pytest.mark.parametrize("poison", POISONS)
def test_poisoned_value_is_not_served_leaves_redis_in_use_and_is_overwritten(
    server, open_tier, entries, warnings, poison
):
    tier = open_tier()
    with server.client() as client:
        POISONS[poison](client, PREFIX + entries.name(1), entries.file(1))
        client.set(PREFIX + entries.name(2), entries.file(2))
    assert tier.get(entries.name(1)) is None
    assert len(warnings) == 1
    assert "cannot be used: " in warnings[0]
    assert entries.same(tier.get(entries.name(2)), entries.make(2))
    tier.put(entries.name(1), entries.make(1))
    wait_until(lambda: entries.same(tier.get(entries.name(1)), entries.make(1)))


def test_no_more_of_a_huge_value_is_read_than_an_entry_may_have(
    server, open_tier, entries, monkeypatch
):
    monkeypatch.setattr(redis_tier, "MAX_FILE_BYTES", 1000)
    tier = open_tier()
    with server.client() as client:
        client.setrange(PREFIX + entries.name(1), 2**27, b"end")
        assert tier.get(entries.name(1)) is None
        assert client.info("stats")["total_net_output_bytes"] < 2**23
    tier.put(entries.name(2), entries.make(2, file_bytes=1001))
    tier.put(entries.name(3), entries.make(3, file_bytes=1000))
    wait_until(lambda: PREFIX + entries.name(3) in server.names())
    assert PREFIX + entries.name(2) not in server.names()


def test_value_of_an_older_layout_is_not_served(server, open_tier, entries, warnings):
    with server.client() as client:
        client.set(PREFIX + entries.name(1), b"MSAMEMB4" + entries.file(1)[8:])
    assert open_tier().get(entries.name(1)) is None
    assert "got b'MSAMEMB4'" in warnings[0]


def test_unreachable_redis_is_reported_once_and_retried_later(
    server, open_tier, entries, warnings, monkeypatch
):
    monkeypatch.setattr(redis_tier, "RETRY_AFTER_S", 3600)
    tier, other = open_tier(), open_tier()
    server.stop()
    for seed in range(2 * redis_tier.MAX_PENDING_WRITES):
        assert tier.get(entries.name(seed)) is None
        tier.put(entries.name(seed), entries.make(seed))  # neither waits nor fails
    assert len(warnings) == 1
    assert "Redis cannot be used" in warnings[0]
    server.start()
    with server.client() as client:
        client.set(PREFIX + entries.name(1), entries.file(1))
    assert tier.get(entries.name(1)) is None
    assert other.get(entries.name(1)) is not None
    assert len(warnings) == 1


@pytest.mark.timeout(300)
def test_hung_redis_times_out_and_its_late_reply_is_discarded(
    server, open_tier, entries, warnings, monkeypatch
):
    monkeypatch.setattr(redis_tier, "RETRY_AFTER_S", 0)
    monkeypatch.setattr(redis_tier, "TRANSFER_TIMEOUT_S", 0.2)
    tier = open_tier()
    with server.client() as client:
        for seed in (1, 2):
            client.set(PREFIX + entries.name(seed), entries.file(seed))
    wait_until(lambda: entries.same(tier.get(entries.name(1)), entries.make(1)))
    warnings.clear()
    server.send(signal.SIGSTOP)
    assert tier.get(entries.name(1)) is None
    assert tier.get(entries.name(1)) is None
    assert len(warnings) == 1
    server.send(signal.SIGCONT)
    wait_until(lambda: entries.same(tier.get(entries.name(2)), entries.make(2)))


@contextmanager
def dripping_server(value: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Run a server whose answers end in single bytes, each in time; yield its URL and the
    commands that it got.
    """
    commands: list[bytes] = []

    class Dripping(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                while received := self.request.recv(65_536):
                    if b"GET" not in received:
                        self.request.sendall(b"+OK\r\n" * received.count(b"CLIENT\r\n"))
                        continue
                    commands.append(received)
                    answer = b"$%d\r\n%s\r\n" % (len(value), value)
                    self.request.sendall(answer[:-40])
                    for byte in answer[-40:]:
                        self.request.sendall(bytes([byte]))
                        time.sleep(0.05)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping) as running:
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{running.server_address[1]}?protocol=2", commands
        running.shutdown()


def test_redis_whose_answer_never_ends_is_not_waited_for_and_then_not_asked(
    entries, warnings, monkeypatch
):
    monkeypatch.setattr(redis_tier, "ANSWER_TIMEOUT_S", 0.3)
    monkeypatch.setattr(redis_tier, "TRANSFER_TIMEOUT_S", 60)
    with dripping_server(entries.file(1)) as (url, commands):
        tier = RedisTier(url, Layout(WEIGHTS), warnings.append)
        assert [tier.get(entries.name(1)) for _ in range(3)] == [None] * 3
        wait_until(lambda: commands)
    assert len(commands) == 1
    assert len(warnings) == 1
    assert "no complete answer within 0.3 s" in warnings[0]


@pytest.mark.timeout(300)
def test_write_queue_is_bounded_while_redis_hangs(
    server, open_tier, entries, warnings, monkeypatch
):
    monkeypatch.setattr(redis_tier, "CONNECT_TIMEOUT_S", 600)
    monkeypatch.setattr(redis_tier, "TRANSFER_TIMEOUT_S", 600)
    tier, entry = open_tier(), entries.make(1)
    server.send(signal.SIGSTOP)
    for seed in range(redis_tier.MAX_PENDING_WRITES + 5):
        tier.put(entries.name(seed), entry)
    server.send(signal.SIGCONT)
    wait_until(lambda: len(server.names()) >= redis_tier.MAX_PENDING_WRITES)
    last = PREFIX + entries.name(100)
    wait_until(lambda: tier.put(entries.name(100), entry) or last in server.names())
    assert len(server.names()) <= redis_tier.MAX_PENDING_WRITES + 2


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:6379", "scheme"),
        ("redis://localhost?socket_timeout=soon", "socket_timeout"),
        ("redis://localhost?socket_timeuot=1", "socket_timeuot"),
    ],
)
def test_invalid_redis_url_is_an_error(url, message):
    with pytest.raises(ValueError, match=message):
        RedisTier(url, Layout(WEIGHTS), print)
