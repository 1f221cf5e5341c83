"""Rate limits: exact for each caller, bounded in memory, shared through Redis and no worse off without it."""

from __future__ import annotations

import asyncio
import logging
import signal
import time

import pytest

from tests.redis_server import redis_server
from utils.edge import rate
from utils.edge.rate import BoundedMemory, RateError, RateLimit
from utils.errors import TooManyRequests

PATIENCE, WAIT = 60, rate.WAIT


class Clock:
    """The time of day, which passes when it is told to."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """An eighth of a second into a window of every length up to an hour."""
    clock = Clock(1_800_000_000.125)
    monkeypatch.setattr(time, "time", clock)
    return clock


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A Redis with which there is patience: a loaded machine is no Redis that hangs."""
    monkeypatch.setattr(rate, "SOCKET_TIMEOUT", PATIENCE)
    monkeypatch.setattr(rate, "WAIT", PATIENCE)
    with redis_server(tmp_path) as running:
        yield running


@pytest.fixture
def log(caplog):
    """Level and text of what was logged."""
    caplog.set_level(logging.INFO, "bentoml.mobile_sam")
    return lambda: [
        (record.levelname, record.getMessage()) for record in caplog.records if record.name == "bentoml.mobile_sam"
    ]


async def attempt(limit, caller="a"):
    """None where a request is let through, and else the error."""
    try:
        await limit.check(caller)
    except TooManyRequests as error:
        return error
    return None


async def let_through(limit, requests, caller="a"):
    """How many of so many requests are let through."""
    return [await attempt(limit, caller) for _ in range(requests)].count(None)


def retry_after(error):
    return int(error.headers()["Retry-After"])


def counts(server):
    """Each count in Redis by its name, without what all names share."""
    with server.client() as client:
        return {name.removeprefix("mobile-sam:rate:"): int(client.get(name)) for name in server.names()}


@pytest.mark.parametrize(
    "text", ["3/minute", "3 per minute", " 3 / 1 minutes ", "3/minute;100/hour", "3/MINUTE, 3/minute"]
)
def test_a_limit_lets_so_many_requests_through(clock, text):
    assert asyncio.run(let_through(RateLimit.of(text, None), 10)) == 3


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
def test_a_text_that_is_no_limit_is_refused_with_an_example(text):
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
def test_a_url_that_cannot_be_used_is_refused_and_not_shown(url):
    with pytest.raises(RateError) as caught:
        RateLimit.of("60/minute", url)
    assert str(caught.value) == "expected a URL of a Redis such as redis://host:6379/0, got one that cannot be used"


@pytest.mark.parametrize("url", ["redis://redis", "rediss://user:secret@redis:1/2", "unix:///run/redis.sock?db=1"])
def test_every_form_of_url_is_taken_and_connects_to_nothing_yet(url):
    asyncio.run(RateLimit.of("60/minute", url).close())


def test_callers_are_counted_apart(clock):
    async def scenario():
        limit = RateLimit.of("2/minute", None)
        return [await let_through(limit, 3, caller) for caller in ("key:ops", "key:web", "address:::1", "a/b", "a")]

    assert asyncio.run(scenario()) == [2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1/minute", "1 request per 1 minute"),
        ("2 per 5 minutes", "2 requests per 5 minutes"),
        ("2/second;3/hour", "2 requests per 1 second"),
    ],
)
def test_a_refusal_says_the_limit_in_words_and_when_to_try_again(clock, text, words):
    async def scenario():
        limit = RateLimit.of(text, None)
        return [await attempt(limit) for _ in range(3)][-1]

    error = asyncio.run(scenario())
    assert error.status == 429
    seconds = retry_after(error)
    assert error.detail == f"expected at most {words}, got more; the next is let through in {seconds} s"


@pytest.mark.parametrize("begin", [0.0, 0.25, 13.7, 59.9])
@pytest.mark.parametrize(
    "text", ["1/second", "3 per 10 seconds", "7/minute", "60/minute", "5/second;9/minute", "1/day"]
)
def test_the_next_request_is_let_through_after_the_seconds_that_were_told_and_no_second_sooner(clock, text, begin):
    async def scenario():
        limit = RateLimit.of(text, None)
        clock.now += begin
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


def test_where_two_windows_meet_the_limit_holds(clock):
    async def scenario():
        limit = RateLimit.of("10/minute", None)
        clock.now += 59
        before = await let_through(limit, 20)
        clock.now += 2
        after = await let_through(limit, 20)
        clock.now += 29
        return before, after, await let_through(limit, 20)

    assert asyncio.run(scenario()) == (10, 1, 5)


def test_after_two_windows_nothing_is_left_of_a_count(clock):
    async def scenario():
        limit = RateLimit.of("10/minute", None)
        await let_through(limit, 20)
        clock.now += 120
        return await let_through(limit, 20)

    assert asyncio.run(scenario()) == 10


@pytest.mark.parametrize("jump", [-86_400, -90, -1, 90, 86_400])
def test_a_clock_that_is_set_refuses_nobody_for_good(clock, jump):
    async def scenario():
        limit = RateLimit.of("3/minute", None)
        before = await let_through(limit, 5)
        clock.now += jump
        at_once = await let_through(limit, 5)
        wait = retry_after(await attempt(limit))
        clock.now += 240  # beyond the windows of before and after the jump
        return before, at_once, wait, await let_through(limit, 5)

    before, at_once, wait, later = asyncio.run(scenario())
    assert (before, later) == (3, 3)
    assert at_once <= 3
    assert wait <= 60


def test_refused_requests_do_not_count(clock):
    async def scenario():
        limit = RateLimit.of("2/second", None)
        await let_through(limit, 1000)
        clock.now += 1.25
        return await let_through(limit, 10)

    assert asyncio.run(scenario()) == 1


def test_a_request_that_one_limit_refuses_counts_for_none(clock):
    async def scenario():
        limit = RateLimit.of("3/hour;2/second", None)
        first = await let_through(limit, 50)
        clock.now += 2
        return first, await let_through(limit, 50)

    assert asyncio.run(scenario()) == (2, 1)


def test_of_two_limits_that_refuse_the_later_one_is_told(clock):
    async def scenario():
        limit = RateLimit.of("1/second;1/hour", None)
        await let_through(limit, 1)
        return await attempt(limit)

    error = asyncio.run(scenario())
    assert "at most 1 request per 1 hour" in error.detail
    assert retry_after(error) == 3600


def test_requests_at_once_do_not_pass_the_limit(clock):
    async def scenario():
        limit = RateLimit.of("5/minute;6/hour", None)
        return await asyncio.gather(*(attempt(limit) for _ in range(50)))

    assert asyncio.run(scenario()).count(None) == 5


def test_counts_of_callers_who_came_once_do_not_stay(clock):
    async def scenario():
        memory = BoundedMemory()
        for caller in range(1000):
            await memory.acquire_sliding_window_entry(f"{caller}", 5, 60)
            clock.now += 1
        return [len(kept) for kept in (memory.storage, memory.expirations, memory.events, memory.locks)]

    assert asyncio.run(scenario()) == [120, 120, 0, 0]


def test_there_is_a_most_of_counts_and_the_oldest_go_first(clock, monkeypatch):
    monkeypatch.setattr(rate, "MOST_COUNTS", 100)

    async def scenario():
        memory = BoundedMemory()
        for caller in range(1000):
            await memory.acquire_sliding_window_entry(f"{caller}", 5, 60)
        return list(memory.storage), list(memory.expirations)

    storage, expirations = asyncio.run(scenario())
    assert storage == expirations
    assert [int(key.split("/")[0]) for key in storage] == list(range(900, 1000))


def test_one_request_more_does_not_cost_a_task(clock):
    async def scenario():
        limit = RateLimit.of("5/minute;6/hour", None)
        await let_through(limit, 50)
        return len(asyncio.all_tasks())

    assert asyncio.run(scenario()) == 1


def test_processes_share_their_counts_through_redis(server, log):
    async def scenario():
        one, other = (RateLimit.of("3/hour", server.url) for _ in range(2))
        passed = [await let_through(one, 2), await let_through(other, 2), await let_through(one, 2)]
        error = await attempt(other)
        apart = await let_through(other, 9, "b")
        await one.close()
        await other.close()
        return passed, error, apart

    passed, error, apart = asyncio.run(scenario())
    assert passed == [2, 1, 0]
    assert apart == 3
    assert "at most 3 requests per 1 hour" in error.detail
    assert 1 <= retry_after(error) <= 3601
    assert counts(server) == {"{LIMITER/a/3/1/hour}": 3, "{LIMITER/b/3/1/hour}": 3}
    assert log() == []


def test_counts_in_redis_do_not_stay(server):
    async def scenario():
        limit = RateLimit.of("3/minute", server.url)
        await let_through(limit, 9)
        await limit.close()

    asyncio.run(scenario())
    with server.client() as client:
        assert [0 < client.ttl(name) <= 120 for name in server.names()] == [True]


def test_in_redis_too_a_request_that_one_limit_refuses_counts_for_none(server):
    async def scenario():
        limit = RateLimit.of("5/day;2/hour", server.url)
        passed = await let_through(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 2
    assert counts(server) == {"{LIMITER/a/5/1/day}": 2, "{LIMITER/a/2/1/hour}": 2}


def test_many_requests_at_once_wait_for_a_connection_to_redis(server, log):
    async def scenario():
        limit = RateLimit.of("50/hour", server.url)
        answers = await asyncio.gather(*(attempt(limit) for _ in range(20 * rate.CONNECTIONS)))
        await limit.close()
        return answers

    assert asyncio.run(scenario()).count(None) == 50
    assert log() == []
    with server.client() as client:
        assert client.info("stats")["total_connections_received"] <= rate.CONNECTIONS + 5


def test_without_redis_requests_are_counted_in_memory_and_one_warning_says_so(server, log, monkeypatch):
    monkeypatch.setattr(rate, "PAUSE", 3600)
    server.stop()

    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        passed = await let_through(limit, 9)
        server.start()
        passed += await let_through(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 3
    assert counts(server) == {}
    ((level, text),) = log()
    assert level == "WARNING"
    assert text.startswith("Redis cannot be used, each process counts requests of its own: ")


def test_redis_is_used_again_when_it_comes_back_and_each_outage_is_told_once(server, log, monkeypatch):
    monkeypatch.setattr(rate, "PAUSE", 0)

    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        for caller in ("a", "b"):
            server.stop()
            assert await let_through(limit, 9, caller) == 3
            server.start()
            assert await let_through(limit, 9, caller) == 3
        await limit.close()

    asyncio.run(scenario())
    assert [level for level, _ in log()] == ["WARNING", "INFO", "WARNING", "INFO"]
    assert log()[1][1] == "Redis can be used again, requests are counted there"


@pytest.mark.timeout(60)
def test_a_hung_redis_is_given_up_whatever_its_url_says_and_used_again_later(server, log, monkeypatch):
    monkeypatch.setattr(rate, "PAUSE", 0)
    url = f"{server.url}?socket_timeout=3600&socket_connect_timeout=3600"

    async def scenario():
        limit = RateLimit.of("2/hour", url)
        first = await let_through(limit, 1)
        monkeypatch.setattr(rate, "WAIT", WAIT)
        server.send(signal.SIGSTOP)
        hung = await let_through(limit, 3)
        server.send(signal.SIGCONT)
        monkeypatch.setattr(rate, "WAIT", PATIENCE)
        last = await let_through(limit, 9, "b")
        await limit.close()
        return first, hung, last

    assert asyncio.run(scenario()) == (1, 2, 2)
    assert [level for level, _ in log()] == ["WARNING", "INFO"]
    assert log()[0][1].endswith(": no answer within 0.25 s")
    assert counts(server)["{LIMITER/b/2/1/hour}"] == 2


@pytest.mark.timeout(60)
def test_while_redis_hangs_one_request_at_a_time_tries_it(server, log, monkeypatch):
    monkeypatch.setattr(rate, "WAIT", WAIT)

    async def scenario():
        limit = RateLimit.of("100/hour", server.url)
        server.send(signal.SIGSTOP)
        await limit.check("a")
        monkeypatch.setattr(rate, "PAUSE", 3600)
        limit._redis_from = 0.0  # the pause is over
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


def test_a_redis_that_answers_with_an_error_is_as_good_as_none(server, log):
    with server.client() as client:
        client.config_set("requirepass", "secret")

    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        passed = await let_through(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 3
    assert [level for level, _ in log()] == ["WARNING"]


def test_a_redis_that_lost_its_scripts_is_given_them_again(server, log):
    async def scenario():
        limit = RateLimit.of("3/hour", server.url)
        passed = await let_through(limit, 2)
        with server.client() as client:
            client.script_flush()
        passed += await let_through(limit, 9)
        await limit.close()
        return passed

    assert asyncio.run(scenario()) == 3
    assert log() == []
