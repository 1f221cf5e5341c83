"""Embeddings in Redis: shared while it answers, and no hindrance when it does not."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import mobile_sam_redis
import pytest
from mobile_sam_redis import RedisTier

from tests.redis_server import RedisServer, redis_server, until

WEIGHTS = "f" * 64
PREFIX = f"mobile-sam:{WEIGHTS[:16]}:"


@pytest.fixture
def server(tmp_path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
def open_tier(server, said) -> Callable[..., RedisTier]:
    return lambda fingerprint=WEIGHTS: RedisTier(server.url, fingerprint, said.append)


def test_what_one_machine_puts_another_gets(server, open_tier, entries, said):
    entry = entries.make(1, file_bytes=100_000)
    open_tier().put(entries.name(1), entry)
    other = open_tier()
    until(lambda: server.names() == [PREFIX + entries.name(1)])
    assert entries.same(other.get(entries.name(1)), entry)
    assert other.get(entries.name(2)) is None
    assert said == []


def test_other_weights_do_not_see_it(server, open_tier, entries):
    open_tier("a" * 64).put(entries.name(1), entries.make(1))
    open_tier("b" * 64).put(entries.name(1), entries.make(2))
    until(lambda: len(server.names()) == 2)
    assert entries.same(open_tier("a" * 64).get(entries.name(1)), entries.make(1))
    assert entries.same(open_tier("b" * 64).get(entries.name(1)), entries.make(2))
    assert open_tier("c" * 64).get(entries.name(1)) is None


def test_an_entry_is_not_kept_for_ever(server, open_tier, entries):
    open_tier().put(entries.name(1), entries.make(1))
    until(lambda: server.names() != [])
    with server.client() as client:
        assert 0 < client.ttl(PREFIX + entries.name(1)) <= mobile_sam_redis.KEEP


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-1], id="truncated"),
        pytest.param(lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], id="a changed byte"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"something else", id="no entry"),
    ],
)
def test_a_damaged_value_is_not_served_and_the_next_put_mends_it(server, open_tier, entries, said, damage):
    with server.client() as client:
        client.set(PREFIX + entries.name(1), damage(entries.file(1)))
    tier = open_tier()
    assert tier.get(entries.name(1)) is None
    assert len(said) == 1
    assert entries.name(1) in said[0]
    tier.put(entries.name(1), entries.make(1))
    until(lambda: entries.same(tier.get(entries.name(1)), entries.make(1)))


def test_redis_away_costs_one_warning_and_is_left_alone_for_a_while(server, open_tier, entries, said, monkeypatch):
    monkeypatch.setattr(mobile_sam_redis, "PAUSE", 3600)
    tier, other = open_tier(), open_tier()
    server.stop()
    for seed in (1, 2, 3):
        assert tier.get(entries.name(seed)) is None
    assert len(said) == 1
    assert "Redis cannot be used" in said[0]
    server.start()
    with server.client() as client:
        client.set(PREFIX + entries.name(1), entries.file(1))
    assert tier.get(entries.name(1)) is None
    assert other.get(entries.name(1)) is not None
    assert len(said) == 1


def test_redis_is_used_again_when_it_comes_back(server, open_tier, entries, said, monkeypatch):
    monkeypatch.setattr(mobile_sam_redis, "PAUSE", 0)
    tier = open_tier()
    for times in (1, 2):
        server.stop()
        assert tier.get(entries.name(1)) is None
        assert tier.get(entries.name(1)) is None
        assert len(said) == times
        server.start()
        tier.put(entries.name(1), entries.make(1))
        until(lambda: entries.same(tier.get(entries.name(1)), entries.make(1)))
        assert len(said) == times


def test_writing_while_redis_is_away_neither_waits_nor_fails(server, open_tier, entries, said, monkeypatch):
    monkeypatch.setattr(mobile_sam_redis, "PAUSE", 3600)
    tier, entry = open_tier(), entries.make(1)
    server.stop()
    for seed in range(3 * mobile_sam_redis.WAITING):
        tier.put(entries.name(seed), entry)
    until(lambda: len(said) == 1)


@pytest.mark.timeout(60)
def test_a_hung_redis_is_given_up_and_its_late_answer_is_not_anothers(server, open_tier, entries, said, monkeypatch):
    monkeypatch.setattr(mobile_sam_redis, "PAUSE", 0)
    monkeypatch.setattr(mobile_sam_redis, "TRANSFER_TIMEOUT", 0.2)
    tier = open_tier()
    with server.client() as client:
        for seed in (1, 2):
            client.set(PREFIX + entries.name(seed), entries.file(seed))
    until(lambda: entries.same(tier.get(entries.name(1)), entries.make(1)))
    said.clear()
    server.send(signal.SIGSTOP)
    assert tier.get(entries.name(1)) is None
    assert tier.get(entries.name(1)) is None
    assert len(said) == 1
    server.send(signal.SIGCONT)
    until(lambda: entries.same(tier.get(entries.name(2)), entries.make(2)))


@pytest.mark.timeout(60)
def test_while_redis_hangs_entries_to_be_written_do_not_pile_up(server, open_tier, entries, said, monkeypatch):
    monkeypatch.setattr(mobile_sam_redis, "CONNECT_TIMEOUT", 600)
    monkeypatch.setattr(mobile_sam_redis, "TRANSFER_TIMEOUT", 600)
    tier, entry = open_tier(), entries.make(1)
    server.send(signal.SIGSTOP)
    for seed in range(mobile_sam_redis.WAITING + 5):
        tier.put(entries.name(seed), entry)
    server.send(signal.SIGCONT)
    until(lambda: len(server.names()) >= mobile_sam_redis.WAITING)
    last = PREFIX + entries.name(100)
    until(lambda: tier.put(entries.name(100), entry) or last in server.names())
    assert len(server.names()) <= mobile_sam_redis.WAITING + 2


@pytest.mark.parametrize(
    "url",
    ["localhost:6379", "http://localhost", "", "redis://localhost:port", "redis://localhost?socket_timeout=soon"],
)
def test_what_is_no_url_of_a_redis_is_refused_at_once(url):
    with pytest.raises(ValueError, match=r".+"):
        RedisTier(url, WEIGHTS, print)


def test_an_unknown_option_in_the_url_is_refused_at_once():
    with pytest.raises(ValueError, match="socket_timeuot"):
        RedisTier("redis://localhost?socket_timeuot=1", WEIGHTS, print)
