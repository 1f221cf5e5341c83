"""Rate limits per caller, in memory and in Redis."""

from __future__ import annotations

import asyncio
import logging
import signal
import time

import pytest

from tests.redis_server import redis_server
from utils.api.errors import TooManyRequests
from utils.edge import rate
from utils.edge.rate import BoundedMemory, RateError, RateLimit

LONG_TIMEOUT_S, REDIS_TIMEOUT_S = 60, rate.REDIS_TIMEOUT_S


class Clock:
    """A time of day that tests set."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Clock that starts 0.125 s into a window of every length up to an hour."""
    clock = Clock(1_800_000_000.125)
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Redis with long timeouts, so that a loaded machine is not mistaken for a hanging Redis."""
    monkeypatch.setattr(rate, "REDIS_SOCKET_TIMEOUT_S", LONG_TIMEOUT_S)
    monkeypatch.setattr(rate, "REDIS_TIMEOUT_S", LONG_TIMEOUT_S)
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
def log(caplog):
    """Return a function that returns level and text of the logged lines."""
    caplog.set_level(logging.INFO, "bentoml.mobile_sam")
    return lambda: [
        (record.levelname, record.getMessage()) for record in caplog.records if record.name == "bentoml.mobile_sam"
    ]


async def attempt(limit, caller="a"):
    """Return None if a request is allowed, else the error."""
    try:
        await limit.check(caller)
    except TooManyRequests as error:
        return error
    return None


async def count_allowed(limit, requests, caller="a"):
    """Return how many of a number of requests are allowed."""
    return [await attempt(limit, caller) for _ in range(requests)].count(None)


def retry_after(error):
    return int(error.headers()["Retry-After"])


def counts(server):
    """Return the counts in Redis by name, without the common prefix."""
    with server.client() as client:
        return {name.removeprefix("mobile-sam:rate:"): int(client.get(name)) for name in server.names()}


@pytest.mark.parametrize(
    "text", ["3/minute", "3 per minute", " 3 / 1 minutes ", "3/minute;100/hour", "3/MINUTE, 3/minute"]
)
def test_rate_limit_allows_its_number_of_requests(clock, text):
    assert asyncio.run(count_allowed(RateLimit.of(text, None), 10)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "often",
        "60",
        "60/",
        "/minute",
        "60/fortnight",
        "-1/minute",
        "1.5/minute",
        "0/minute",
        "1/minute;0/hour",
        "1/minute;",
    ],
)
def test_invalid_limit_is_refused_with_an_example(text):
    with pytest.raises(RateError) as caught:
        RateLimit.of(text, None)
    assert str(caught.value) == (f"expected limits such as '60/minute' or '10 per second; 1000 per hour', got {text!r}")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@localhost",
        "localhost:6379",
        "",
        "redis://:secret/@localhost",
        "redis://:secret@localhost?socket_timeout=soon",
        "redis://:secret@localhost?socket_timeuot=1",
    ],
)
def test_invalid_redis_url_is_refused_and_not_shown(url):
    with pytest.raises(RateError) as caught:
        RateLimit.of("60/minute", url)
    assert str(caught.value) == "expected a Redis URL such as redis://host:6379/0, got one that is not valid"


@pytest.mark.parametrize("url", ["redis://redis", "rediss://user:secret@redis:1/2", "unix:///run/redis.sock?db=1"])
def test_every_form_of_redis_url_is_accepted_without_connecting(url):
    asyncio.run(RateLimit.of("60/minute", url).close())


def test_callers_are_counted_separately(clock):
    async def scenario():
        limit = RateLimit.of("2/minute", None)
        return [await count_allowed(limit, 3, caller) for caller in ("key:ops", "key:web", "address:::1", "a/b", "a")]

    assert asyncio.run(scenario()) == [2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("text", "limit_text"),
    [
        ("1/minute", "1 request per minute"),
        ("2 per 5 minutes", "2 requests per 5 minutes"),
        ("2/second;3/hour", "2 requests per second"),
    ],
)
def test_refusal_names_the_limit_and_the_time_to_retry(clock, text, limit_text):
    async def scenario():
        limit = RateLimit.of(text, None)
        return [await attempt(limit) for _ in range(3)][-1]

    error = asyncio.run(scenario())
    assert error.status == 429
    seconds = retry_after(error)
    assert error.detail == f"rate limit exceeded ({limit_text}); retry in {seconds} s"


@pytest.mark.parametrize("offset_s", [0.0, 0.25, 13.7, 59.9])
@pytest.mark.parametrize(
    "text", ["1/second", "3 per 10 seconds", "7/minute", "60/minute", "5/second;9/minute", "1/day"]
)
def test_next_request_is_allowed_exactly_after_retry_after(clock, text, offset_s):
    async def scenario():
        limit = RateLimit.of(text, None)
        clock.now += offset_s
        for _ in range(40):
            while (error := await attempt(limit)) is None:
                pass
            seconds = retry_after(error)
            clock.now += seconds - 1
            sooner = await attempt(limit)
            assert sooner is not None
            assert retry_after(sooner) == 1
            clock.now += 1
            assert await attempt(limit) is None

    asyncio.run(scenario())


def test_limit_holds_across_two_windows(clock):
    async def scenario():
        limit = RateLimit.of("10/minute", None)
        clock.now += 59
        before = await count_allowed(limit, 20)
        clock.now += 2
        after = await count_allowed(limit, 20)
        clock.now += 29
        return before, after, await count_allowed(limit, 20)

    assert asyncio.run(scenario()) == (10, 1, 5)


def test_count_expires_after_two_windows(clock):
    async def scenario():
        limit = RateLimit.of("10/minute", None)
        await count_allowed(limit, 20)
        clock.now += 120
        return await count_allowed(limit, 20)

    assert asyncio.run(scenario()) == 10


@pytest.mark.parametrize("jump", [-86_400, -90, -1, 90, 86_400])
def test_clock_jump_blocks_nobody_for_long(clock, jump):
    async def scenario():
        limit = RateLimit.of("3/minute", None)
        before = await count_allowed(limit, 5)
        clock.now += jump
        at_once = await count_allowed(limit, 5)
        wait = retry_after(await attempt(limit))
        clock.now += 240  # beyond the windows of before and after the jump
        return before, at_once, wait, await count_allowed(limit, 5)

    before, at_once, wait, later = asyncio.run(scenario())
    assert (before, later) == (3, 3)
    assert at_once <= 3
    assert wait <= 60


def test_refused_requests_do_not_count(clock):
    async def scenario():
        limit = RateLimit.of("2/second", None)
        await count_allowed(limit, 1000)
        clock.now += 1.25
        return await count_allowed(limit, 10)

    assert asyncio.run(scenario()) == 1


def test_request_refused_by_one_limit_counts_in_none(clock):
    async def scenario():
        limit = RateLimit.of("3/hour;2/second", None)
        first = await count_allowed(limit, 50)
        clock.now += 2
        return first, await count_allowed(limit, 50)

    assert asyncio.run(scenario()) == (2, 1)


def test_refusal_names_the_limit_with_the_longest_wait(clock):
    async def scenario():
        limit = RateLimit.of("1/second;1/hour", None)
        await count_allowed(limit, 1)
        return await attempt(limit)

    error = asyncio.run(scenario())
    assert "(1 request per hour)" in error.detail
    assert retry_after(error) == 3600


def test_concurrent_requests_do_not_exceed_the_limit(clock):
    async def scenario():
        limit = RateLimit.of("5/minute;6/hour", None)
        return await asyncio.gather(*(attempt(limit) for _ in range(50)))

    assert asyncio.run(scenario()).count(None) == 5


def test_expired_counts_are_dropped(clock):
    async def scenario():
        memory = BoundedMemory()
        for caller in range(1000):
            await memory.acquire_sliding_window_entry(f"{caller}", 5, 60)
            clock.now += 1
        return [len(kept) for kept in (memory.storage, memory.expirations, memory.events, memory.locks)]

    assert asyncio.run(scenario()) == [120, 120, 0, 0]


def test_oldest_counts_are_dropped_beyond_the_limit(clock, monkeypatch):
    monkeypatch.setattr(rate, "MAX_COUNTS", 100)

    async def scenario():
        memory = BoundedMemory()
        for caller in range(1000):
            await memory.acquire_sliding_window_entry(f"{caller}", 5, 60)
        return list(memory.storage), list(memory.expirations)

    storage, expirations = asyncio.run(scenario())
    assert storage == expirations
    assert [int(key.split("/")[0]) for key in storage] == list(range(900, 1000))


def test_counting_starts_no_background_tasks(clock):
    async def scenario():
        limit = RateLimit.of("5/minute;6/hour", None)
        await count_allowed(limit, 50)
        return len(asyncio.all_tasks())

    assert asyncio.run(scenario()) == 1


def test_processes_share_counts_through_redis(server, log):
    async def scenario():
        one, other = (RateLimit.of("3/hour", server.url) for _ in range(2))
        passed = [await count_allowed(one, 2), await count_allowed(other, 2), await count_allowed(one, 2)]
        error = await attempt(other)
        separate = await count_allowed(other, 9, "b")
        await one.close()
        await other.close()
        return passed, error, separate

    passed, error, separate = asyncio.run(scenario())
    assert passed == [2, 1, 0]
    assert separate == 3
    assert "(3 requests per hour)" in error.detail
    assert 1 <= retry_after(error) <= 3601
    assert counts(server) == {"{LIMITER/a/3/1/hour}": 3, "{LIMITER/b/3/1/hour}": 3}
    assert log() == []


def test_counts_in_redis_expire(server):
    async def scenario():
        limit = RateLimit.of("3/minute", server.url)
        await count_allowed(limit, 9)
        await limit.close()

    asyncio.run(scenario())
    with server.client() as client:
        assert [0 < client.ttl(name) <= 120 for name in server.names()] == [True]


def test_request_refused_by_one_limit_counts_in_none_in_redis(server):
    async def scenario():
        limit = RateLimit.of("5/day;2/hour", server.url)
        passed = await count_allowed(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 2
    assert counts(server) == {"{LIMITER/a/5/1/day}": 2, "{LIMITER/a/2/1/hour}": 2}


def test_concurrent_requests_share_the_redis_connections(server, log):
    async def scenario():
        limit = RateLimit.of("50/hour", server.url)
        answers = await asyncio.gather(*(attempt(limit) for _ in range(20 * rate.MAX_REDIS_CONNECTIONS)))
        await limit.close()
        return answers

    assert asyncio.run(scenario()).count(None) == 50
    assert log() == []
    with server.client() as client:
        assert client.info("stats")["total_connections_received"] <= rate.MAX_REDIS_CONNECTIONS + 5


def test_requests_are_counted_in_memory_without_redis(server, log, monkeypatch):
    monkeypatch.setattr(rate, "REDIS_RETRY_INTERVAL_S", 3600)
    server.stop()

    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        passed = await count_allowed(limit, 9)
        server.start()
        passed += await count_allowed(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 3
    assert counts(server) == {}
    ((level, text),) = log()
    assert level == "WARNING"
    assert text.startswith("Redis is unavailable, each process counts requests on its own: ")


def test_redis_is_used_again_and_each_outage_is_logged_once(server, log, monkeypatch):
    monkeypatch.setattr(rate, "REDIS_RETRY_INTERVAL_S", 0)

    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        for caller in ("a", "b"):
            server.stop()
            assert await count_allowed(limit, 9, caller) == 3
            server.start()
            assert await count_allowed(limit, 9, caller) == 3
        await limit.close()

    asyncio.run(scenario())
    assert [level for level, _ in log()] == ["WARNING", "INFO", "WARNING", "INFO"]
    assert log()[1][1] == "Redis is available again, requests are counted there"


@pytest.mark.timeout(60)
def test_hanging_redis_times_out_whatever_its_url_says(server, log, monkeypatch):
    monkeypatch.setattr(rate, "REDIS_RETRY_INTERVAL_S", 0)
    url = f"{server.url}?socket_timeout=3600&socket_connect_timeout=3600"

    async def scenario():
        limit = RateLimit.of("2/hour", url)
        first = await count_allowed(limit, 1)
        monkeypatch.setattr(rate, "REDIS_TIMEOUT_S", REDIS_TIMEOUT_S)
        server.send(signal.SIGSTOP)
        hung = await count_allowed(limit, 3)
        server.send(signal.SIGCONT)
        monkeypatch.setattr(rate, "REDIS_TIMEOUT_S", LONG_TIMEOUT_S)
        last = await count_allowed(limit, 9, "b")
        await limit.close()
        return first, hung, last

    assert asyncio.run(scenario()) == (1, 2, 2)
    assert [level for level, _ in log()] == ["WARNING", "INFO"]
    assert log()[0][1].endswith(": no answer within 0.25 s")
    assert counts(server)["{LIMITER/b/2/1/hour}"] == 2


@pytest.mark.timeout(60)
def test_one_request_at_a_time_retries_a_hanging_redis(server, log, monkeypatch):
    monkeypatch.setattr(rate, "REDIS_TIMEOUT_S", REDIS_TIMEOUT_S)

    async def scenario():
        limit = RateLimit.of("100/hour", server.url)
        server.send(signal.SIGSTOP)
        await limit.check("a")
        monkeypatch.setattr(rate, "REDIS_RETRY_INTERVAL_S", 3600)
        limit._redis_retry_at = 0.0
        done = []

        async def request(number):
            await limit.check("a")
            done.append(number)

        await asyncio.gather(*(request(number) for number in range(20)))
        server.send(signal.SIGCONT)
        await limit.close()
        return done

    assert asyncio.run(scenario()) == [*range(1, 20), 0]
    assert [level for level, _ in log()] == ["WARNING"]


def test_requests_are_counted_in_memory_if_redis_answers_with_errors(server, log):
    with server.client() as client:
        client.config_set("requirepass", "secret")

    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        passed = await count_allowed(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 3
    assert [level for level, _ in log()] == ["WARNING"]


def test_lost_redis_scripts_are_loaded_again(server, log):
    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        passed = await count_allowed(limit, 2)
        with server.client() as client:
            client.script_flush()
        passed += await count_allowed(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 3
    assert log() == []
