"""Rate limits per caller, in memory and in Redis."""

import asyncio
import signal
from contextlib import aclosing

import pytest

from tests.unit.utils.edge.conftest import LONG_TIMEOUT_S
from tests.unit.utils.edge.fakes import Clock
from utils.edge import rate, redis_counts
from utils.edge.counts import CountTable
from utils.edge.rate import RateLimit
from utils.errors import QueueTooLarge, TooManyRequests
from utils.settings import SettingsError

REDIS_TIMEOUT_S = redis_counts.TIMEOUT_S


@pytest.fixture
def clock():
    """Clock of the process that starts 0.125 s into a window of every length up to an hour."""
    return Clock(1_800_000_000.125)


async def attempt(limit, caller="a"):
    """Return None if a request is allowed, else the error."""
    try:
        await limit.check("", caller)
    except TooManyRequests as error:
        return error
    return None


async def count_allowed(limit, requests, caller="a"):
    """Return how many of a number of requests are allowed."""
    return [await attempt(limit, caller) for _ in range(requests)].count(None)


def retry_after(error):
    return int(error.headers()["Retry-After"])


def counts(server):
    """Return the counts of the current windows in Redis by name, without the common prefix."""
    with server.client() as client:
        values = {name: client.get(name).split() for name in server.names()}
    return {
        name.removeprefix("mobile-sam:rate:"): int(current)
        for name, (_, _, current) in values.items()
    }


@pytest.mark.parametrize(
    "text",
    ["3/minute", "3 per minute", " 3 / 1 minutes ", "3/minute;100/hour", "3/MINUTE, 3/minute"],
)
async def test_rate_limit_allows_its_number_of_requests(clock, text):
    assert await count_allowed(RateLimit(text, None, clock=clock), 10) == 3


@pytest.mark.parametrize(
    "text", ["", "often", "60/", "60/fortnight", "-1/minute", "1.5/minute", "1/minute;0/hour"]
)
def test_invalid_limit_is_refused_with_an_example(text):
    with pytest.raises(SettingsError) as caught:
        RateLimit(text, None)
    expected = (
        f"expected limits such as '60/minute' or '10 per second; 1000 per hour', got {text!r}"
    )
    assert str(caught.value) == f"MOBILE_SAM_RATE_LIMIT: {expected}"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@localhost",
        "redis://:secret/@localhost",
        "redis://:secret@localhost?socket_timeout=soon",
        "redis://:secret@localhost?socket_timeuot=1",
    ],
)
def test_invalid_redis_url_is_refused_and_not_shown(url):
    with pytest.raises(SettingsError) as caught:
        RateLimit("60/minute", url)
    expected = "expected a Redis URL such as redis://host:6379/0, got one that is not valid"
    assert str(caught.value) == f"MOBILE_SAM_REDIS_URL: {expected}"


@pytest.mark.parametrize(
    "url", ["redis://redis", "rediss://user:secret@redis:1/2", "unix:///run/redis.sock?db=1"]
)
async def test_every_form_of_redis_url_is_accepted_without_connecting(url):
    await RateLimit("60/minute", url).aclose()


@pytest.mark.parametrize(
    ("text", "limit_text"),
    [
        ("1/minute", "1 request per minute"),
        ("2 per 5 minutes", "2 requests per 5 minutes"),
        ("1/second;1/hour", "1 request per hour"),
    ],
)
async def test_refusal_names_the_limit_and_the_time_to_retry(clock, text, limit_text):
    limit = RateLimit(text, None, clock=clock)
    error = [await attempt(limit) for _ in range(3)][-1]
    assert error.status == 429
    assert error.detail == f"rate limit exceeded ({limit_text}); retry in {retry_after(error)} s"


@pytest.mark.parametrize("offset_s", [0.0, 13.7, 59.9])
@pytest.mark.parametrize("text", ["3 per 10 seconds", "7/minute", "5/second;9/minute", "1/day"])
async def test_next_request_is_allowed_exactly_after_retry_after(clock, text, offset_s):
    limit = RateLimit(text, None, clock=clock)
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


async def test_requests_refused_by_one_limit_count_in_none(clock):
    limit = RateLimit("3/hour;2/second", None, clock=clock)
    for seconds, allowed in ((0, 2), (2, 1)):
        clock.now += seconds
        assert await count_allowed(limit, 1000) == allowed


RATES = {"fast": "5/minute", "slow": "1/minute; 9/hour"}


async def allowed_names(limit: RateLimit, *names: str) -> list[int]:
    """Return how many of nine requests each name is allowed, from any address."""

    async def is_allowed(name: str, number: int) -> bool:
        try:
            await limit.check(name, f"10.0.0.{number}")
        except TooManyRequests:
            return False
        return True

    return [[await is_allowed(name, number) for number in range(9)].count(True) for name in names]


def rates_of(name: str) -> rate.Rates | None:
    return rate.parse_rates(RATES[name]) if name in RATES else None


@pytest.mark.parametrize(("text", "other"), [("3/minute", 3), (None, 9)])
async def test_key_with_a_rate_of_its_own_has_that_one_and_others_the_common_one(
    clock, text, other
):
    limit = RateLimit(text, None, rates_of=rates_of, clock=clock)
    assert await allowed_names(limit, "fast", "slow", "other") == [5, 1, other]


async def test_rate_of_a_key_holds_for_all_processes_with_redis_and_with_a_file(server, tmp_path):
    for url, file in ((server.url, None), (None, tmp_path / "rates")):
        one, other = (RateLimit("3/hour", url, file=file, rates_of=rates_of) for _ in range(2))
        async with aclosing(one), aclosing(other):
            assert await allowed_names(one, "fast", "other") == [5, 3]
            assert await allowed_names(other, "fast", "slow", "other") == [0, 1, 0]


async def test_changed_rate_of_a_key_applies_to_the_next_request(clock, monkeypatch):
    monkeypatch.setattr(rate, "REFUSED_S", 0)
    rates = {"key": "2/hour"}
    limit = RateLimit(None, None, rates_of=lambda name: rate.parse_rates(rates[name]), clock=clock)
    assert await allowed_names(limit, "key") == [2]
    rates["key"] = "5/hour"
    assert await allowed_names(limit, "key") == [3]


async def test_workers_of_this_machine_count_together_while_redis_is_unavailable(
    server, tmp_path, log
):
    file = tmp_path / "rates"
    one, other = (RateLimit("3/hour", server.url, file=file) for _ in range(2))
    server.stop()
    async with aclosing(one), aclosing(other):
        assert [await count_allowed(one, 2), await count_allowed(other, 9)] == [2, 1]
    assert [level for level, _ in log()] == ["WARNING", "WARNING"]


async def test_several_requests_count_together_or_not_at_all(clock):
    limit = RateLimit("5/minute; 100/hour", None, clock=clock)
    await limit.check("", "a", 3)
    with pytest.raises(TooManyRequests, match=r"5 requests per minute"):
        await limit.check("", "a", 3)
    await limit.check("", "a", 2)
    assert await count_allowed(limit, 1) == 0


async def test_list_that_never_fits_is_a_final_error(clock):
    limit = RateLimit("10/second; 2000/hour", None, clock=clock)
    await limit.check("", "a")
    await limit.check("", "a", 9)
    message = r"expected at most 10 images in a list, .* allows 10 requests per second, got 11;"
    with pytest.raises(QueueTooLarge, match=message):
        await limit.check("", "b", 10)


async def test_concurrent_requests_do_not_exceed_the_limit_and_start_no_tasks(clock):
    limit = RateLimit("5/minute;6/hour", None, clock=clock)
    answers = await asyncio.gather(*(attempt(limit) for _ in range(50)))
    assert answers.count(None) == 5
    assert len(asyncio.all_tasks()) == 1


async def test_processes_share_counts_through_redis_where_they_expire(server, log):
    async with (
        aclosing(RateLimit("3/hour", server.url)) as one,
        aclosing(RateLimit("3/hour", server.url)) as other,
    ):
        assert [await count_allowed(limit, 2) for limit in (one, other, one)] == [2, 1, 0]
        error = await attempt(other)
        assert await count_allowed(other, 9, "b") == 3
    assert "(3 requests per hour)" in error.detail
    assert 1 <= retry_after(error) <= 3601
    assert counts(server) == {"{address:a}:3600": 3, "{address:b}:3600": 3}
    with server.client() as client:
        assert [0 < client.ttl(name) <= 7200 for name in server.names()] == [True, True]
    assert log() == []


async def test_redis_is_used_again_and_each_outage_is_logged_once(server, log, monkeypatch):
    monkeypatch.setattr(rate, "RETRY_INTERVAL_S", 0)
    monkeypatch.setattr(rate, "REFUSED_S", 0)
    async with aclosing(RateLimit("3/hour", server.url)) as limit:
        for caller in ("a", "b"):
            server.stop()
            assert await count_allowed(limit, 9, caller) == 3
            server.start()
            assert await count_allowed(limit, 9, caller) == 3
    assert [level for level, _ in log()] == ["WARNING", "INFO", "WARNING", "INFO"]
    assert log()[0][1].startswith("Redis is unavailable, each machine counts requests on its own: ")
    assert log()[1][1] == "Redis is available again, requests are counted there"
    assert set(counts(server).values()) == {3}


@pytest.mark.timeout(300)
async def test_hanging_redis_times_out_whatever_its_url_says(server, log, monkeypatch):
    monkeypatch.setattr(rate, "RETRY_INTERVAL_S", 0)
    async with aclosing(
        RateLimit("2/hour", f"{server.url}?socket_timeout=3600&socket_connect_timeout=3600")
    ) as limit:
        assert await count_allowed(limit, 1) == 1
        monkeypatch.setattr(redis_counts, "TIMEOUT_S", REDIS_TIMEOUT_S)
        server.send(signal.SIGSTOP)
        assert await count_allowed(limit, 3) == 2
        server.send(signal.SIGCONT)
        monkeypatch.setattr(redis_counts, "TIMEOUT_S", LONG_TIMEOUT_S)
        assert await count_allowed(limit, 9, "b") == 2
    assert [level for level, _ in log()] == ["WARNING", "INFO"]
    assert log()[0][1].endswith(": no answer within 0.25 s")
    assert counts(server)["{address:b}:3600"] == 2


@pytest.mark.timeout(300)
async def test_one_request_at_a_time_retries_a_hanging_redis(server, log, monkeypatch):
    monkeypatch.setattr(redis_counts, "TIMEOUT_S", REDIS_TIMEOUT_S)
    monkeypatch.setattr(rate, "RETRY_INTERVAL_S", 0)
    done: list[int] = []

    async def request(number):
        await limit.check("", "a")
        done.append(number)

    async with aclosing(RateLimit("100/hour", server.url)) as limit:
        server.send(signal.SIGSTOP)
        await limit.check("", "a")
        monkeypatch.setattr(rate, "RETRY_INTERVAL_S", 3600)
        await asyncio.gather(*(request(number) for number in range(20)))
        server.send(signal.SIGCONT)
    assert done == [*range(1, 20), 0]
    assert [level for level, _ in log()] == ["WARNING"]


async def test_refused_caller_is_not_counted_again_for_a_second(clock, monkeypatch):
    limit, counted = RateLimit("5/minute", None, clock=clock), list[str]()
    add = CountTable.add

    def spied(counts, caller, limits, count):
        counted.append(caller.removeprefix("address:"))
        return add(counts, caller, limits, count)

    assert await count_allowed(limit, 2) == 2
    monkeypatch.setattr(CountTable, "add", spied)
    with pytest.raises(TooManyRequests):
        await limit.check("", "a", 4)
    await limit.check("", "a", 3)  # fewer may be allowed
    assert await count_allowed(limit, 5) == 0
    assert (await count_allowed(limit, 1, "b"), counted) == (1, ["a", "a", "a", "b"])
    clock.now += 1
    assert (await count_allowed(limit, 5), len(counted)) == (0, 5)


async def test_requests_refused_by_a_short_limit_do_not_count_in_a_long_one(server, clock):
    async with aclosing(RateLimit("9/hour; 2/minute", server.url)) as limit:
        assert (await asyncio.gather(*(attempt(limit) for _ in range(20)))).count(None) == 2
    assert counts(server) == {"{address:a}:60": 2, "{address:a}:3600": 2}
    limit = RateLimit("9/minute; 2/second", None, clock=clock)
    for _ in range(4):
        assert (await asyncio.gather(*(attempt(limit) for _ in range(20)))).count(None) == 2
        clock.now += 2
    assert await count_allowed(limit, 2) == 1  # the ninth in this minute


async def test_connections_that_a_restart_of_redis_has_closed_are_replaced(server):
    async with aclosing(RateLimit("99/hour", server.url)) as limit:
        for _ in range(2):
            await asyncio.gather(*(limit.check("", "a") for _ in range(8)))
            assert list(counts(server).values()) == [8]
            server.stop()
            server.start()
