"""Counts in Redis: values of other programs, clocks that were set, and a slow Redis."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from limits import parse

from tests.unit.utils.edge.fakes import Clock
from utils.edge import redis_counts
from utils.edge.counts import CountTable
from utils.edge.rate import RateLimit
from utils.edge.redis_counts import RedisCounts

NAME = "mobile-sam:rate:{a}:3600"
HOUR_MS = 3_600_000


async def count_allowed(counts, limits, requests):
    """Return how many of a number of requests are allowed."""
    refusals = [await counts.add("a", limits, 1) for _ in range(requests)]
    return refusals.count([])


def now_ms(client):
    seconds, microseconds = client.time()
    return seconds * 1000 + microseconds // 1000


NO_COUNTS: dict[str, Callable] = {
    "a list": lambda client: client.rpush(NAME, 1),
    "a hash": lambda client: client.hset(NAME, "count", 1),
    "a set": lambda client: client.sadd(NAME, 1),
    "a stream": lambda client: client.xadd(NAME, {"count": 1}),
    "a huge number": lambda client: client.set(NAME, 2**63 - 1),
    "text": lambda client: client.set(NAME, "three"),
    "two numbers": lambda client: client.set(NAME, "1 2"),
    "a negative number": lambda client: client.set(NAME, f"{now_ms(client)} 0 -1000"),
    "infinity": lambda client: client.set(NAME, f"{now_ms(client)} 0 inf"),
    "a line more": lambda client: client.set(NAME, f"{now_ms(client)} 0 3\n"),
    "128 MB": lambda client: client.setrange(NAME, 2**27, b"end"),
}


@pytest.mark.parametrize("kind", NO_COUNTS)
async def test_value_that_is_no_count_is_replaced_and_logged_once(server, log, kind):
    limits = [parse("3/hour")]
    with server.client() as client:
        async with aclosing(RedisCounts(server.url)) as counts:
            for _ in range(2):
                client.delete(NAME)
                NO_COUNTS[kind](client)
                assert await count_allowed(counts, limits, 9) == 3
        assert client.get(NAME).split()[1:] == [b"0", b"3"]
        assert 0 < client.pttl(NAME) <= 2 * HOUR_MS
    expected = (
        f"Redis: the value of {NAME} is no count of requests and is replaced, as all further ones"
    )
    assert log() == [("WARNING", expected)]


async def test_damaged_value_of_one_caller_leaves_redis_in_use_for_others(server, tmp_path, log):
    with server.client() as client:
        client.rpush("mobile-sam:rate:{address:a}:3600", 1)
    async with aclosing(RateLimit("3/hour", server.url, file=tmp_path / "rates")) as limit:
        for caller in ("a", "b"):
            await limit.check("", caller)
    with server.client() as client:
        for caller in ("a", "b"):
            assert client.get(f"mobile-sam:rate:{{address:{caller}}}:3600").split()[1:] == [
                b"0",
                b"1",
            ]
    assert [level for level, _ in log()] == ["WARNING"]
    assert not (tmp_path / "rates").exists()


@pytest.mark.parametrize("place", ["previous", "current"])
async def test_huge_count_without_expiry_refuses_for_two_windows_at_most(server, place):
    limits = [parse("3/hour")]
    huge = "9" * 20
    previous, current = (huge, "1") if place == "previous" else ("0", huge)
    with server.client() as client:
        async with aclosing(RedisCounts(server.url)) as counts:
            client.set(NAME, f"{now_ms(client)} {previous} {current}")
            ((wait_s, _),) = await counts.add("a", limits, 1)
            assert 1 <= wait_s <= 2 * 3600
            # As after this wait, and a minute more for a pause of the test between the two commands
            # above.
            client.set(NAME, f"{now_ms(client) - 1000 * (wait_s + 60)} {previous} {current}")
            assert await counts.add("a", limits, 1) == []
        assert 0 < client.pttl(NAME) <= 2 * HOUR_MS


@pytest.mark.parametrize(
    "jump_ms", [1000, 24 * HOUR_MS, 10**15], ids=["a second", "a day", "millennia"]
)
async def test_clock_of_redis_that_was_set_back_begins_a_window(server, jump_ms):
    limits = [parse("3/hour")]
    with server.client() as client:
        async with aclosing(RedisCounts(server.url)) as counts:
            # A pause of the test must not make the window to come the current one.
            client.set(NAME, f"{now_ms(client) + max(jump_ms, HOUR_MS)} 3 3")
            assert await count_allowed(counts, limits, 9) == 3
        start = int(client.get(NAME).split()[0])
        assert start <= now_ms(client)


@pytest.mark.parametrize("text", ["3/day", "7 per 2 days", "40/day"])
@pytest.mark.parametrize("passed", [0.0, 0.3, 0.9, 1.31, 1.52, 1.93, 2.1, 7.0])
async def test_counts_of_earlier_windows_weigh_as_in_the_table_of_one_machine(server, text, passed):
    limit = parse(text)
    length_s = limit.get_expiry()
    clock = Clock(20_000 * length_s)
    table = CountTable(None, clock)
    assert table.add("a", [limit], limit.amount) == []
    clock.now += passed * length_s
    in_table = [table.add("a", [limit], 1) for _ in range(limit.amount + 1)]
    with server.client() as client:
        start = now_ms(client) - int(passed * length_s * 1000)
        client.set(f"mobile-sam:rate:{{a}}:{length_s}", f"{start} 0 {limit.amount}")
        async with aclosing(RedisCounts(server.url)) as counts:
            in_redis = [await counts.add("a", [limit], 1) for _ in range(limit.amount + 1)]
    assert in_redis.count([]) == in_table.count([])
    if passed < 2:  # later a window begins, in the table at a multiple of its length
        waits = [refusals[0][0] for refusals in (in_table[-1], in_redis[-1])]
        minute_s = 60  # the test itself takes time
        assert waits[0] - minute_s <= waits[1] <= waits[0] + 1


async def test_several_limits_count_in_one_step_or_not_at_all(server):
    limits = [parse("2/minute"), parse("9/hour")]
    async with aclosing(RedisCounts(server.url)) as counts:
        answers = await asyncio.gather(*(counts.add("a", limits, 1) for _ in range(40)))
        assert answers.count([]) == 2
        refused = await counts.add("a", limits, 8)
    assert [limit for _, limit in refused] == limits
    with server.client() as client:
        assert [client.get(name).split()[2] for name in server.names()] == [b"2", b"2"]


@asynccontextmanager
async def slow_proxy(port: int, delay: Callable[[], float]) -> AsyncIterator[str]:
    """Run a server in front of Redis that delays each answer; yield its URL."""
    connections: list[asyncio.Task[None]] = []

    async def copy(source, target, wait) -> None:
        while data := await source.read(65_536):
            await asyncio.sleep(wait())
            target.write(data)
        target.close()
        await target.wait_closed()

    async def serve(reader, writer) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", port)
        for copying in (copy(reader, to_redis, lambda: 0), copy(from_redis, writer, delay)):
            connections.append(asyncio.create_task(copying))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as proxy:
        host, listening = proxy.sockets[0].getsockname()
        yield f"redis://{host}:{listening}"
    await asyncio.gather(*connections)


@pytest.mark.timeout(300)
async def test_slow_redis_is_left_alone_and_no_late_answer_is_taken_for_another(
    server, log, monkeypatch
):
    monkeypatch.setattr("utils.edge.rate.RETRY_INTERVAL_S", 0)
    monkeypatch.setattr("utils.edge.rate.REFUSED_S", 0)
    delays = {"now": 0.0}
    async with (
        slow_proxy(server.port, lambda: delays["now"]) as url,
        aclosing(RateLimit("3/hour", url)) as limit,
    ):
        for _ in range(3):
            await limit.check("", "full")
        monkeypatch.setattr(redis_counts, "TIMEOUT_S", 0.05)
        delays["now"] = 1.0
        await limit.check("", "full")  # Redis would refuse it; this process counts its first
        monkeypatch.setattr(redis_counts, "TIMEOUT_S", 60)
        delays["now"] = 0.01
        for _ in range(3):
            await limit.check("", "new")  # the late answer is a refusal
    assert [level for level, _ in log()] == ["WARNING", "INFO"]
    with server.client() as client:
        assert client.get("mobile-sam:rate:{address:new}:3600").split()[2] == b"3"
