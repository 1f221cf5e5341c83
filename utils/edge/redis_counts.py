"""Counts of each caller's requests in Redis, which all replicas of the service share.

Whatever another program writes in their place, a caller is neither refused for more than two
windows nor never: a value that is no count is replaced, a number above the limit counts as the
limit, and a window that has not begun, as after Redis's clock was set back, begins now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from limits import RateLimitItem

from utils.edge.counts import Refusal, Window
from utils.observability.logs import logger
from utils.settings import SettingsError

SOCKET_TIMEOUT_S = 0.2
TIMEOUT_S = 0.25
"""Time that a request waits for Redis in total."""
MAX_CONNECTIONS = 16
"""Connections to Redis; further requests wait for a free one."""
KEY_PREFIX = "mobile-sam:rate"

COUNT = """
-- KEYS: the caller's count for each limit.
-- ARGV: number of requests, then amount and seconds of each limit.
-- A count is a string: the start of its window in milliseconds, requests in the window before it
-- and in this one.
-- Returns the position of a value that is no count, or 0, and per limit: 1 if it is exceeded,
-- requests in the window before and in this one, milliseconds until this one ends.
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local requests = tonumber(ARGV[1])
local result = {0}
local windows = {}
local allowed = true

for index, key in ipairs(KEYS) do
    local amount = tonumber(ARGV[2 * index])
    local length = tonumber(ARGV[2 * index + 1]) * 1000
    local start, previous, current = now, 0, 0
    local value = redis.pcall('getrange', key, 0, 63)
    if value ~= '' then
        -- The value of another type is a table with the error.
        local text = type(value) == 'string' and value or ''
        local fields = {string.match(text, '^(%d+) (%d+) (%d+)$')}
        if #fields == 3 then
            start = tonumber(fields[1])
            previous = math.min(tonumber(fields[2]), amount)
            current = math.min(tonumber(fields[3]), amount)
        else
            result[1] = index
        end
    end

    local age = now - start
    if age < 0 or age >= 2 * length then
        start, previous, current = now, 0, 0
    elseif age >= length then
        start, previous, current = start + length, current, 0
    end
    local rest = start + length - now
    local exceeded = math.floor(previous * rest / length + current) + requests > amount
    if exceeded then
        allowed = false
    end
    windows[index] = {start, previous, current + requests, rest + length}
    table.insert(result, exceeded and 1 or 0)
    table.insert(result, previous)
    table.insert(result, current)
    table.insert(result, rest)
end

if allowed then
    for index, key in ipairs(KEYS) do
        local start, previous, current, needed = unpack(windows[index])
        local value = string.format('%.0f %.0f %.0f', start, previous, current)
        redis.call('set', key, value, 'PX', string.format('%.0f', needed))
    end
end
return result
"""
FIELDS_PER_LIMIT = 4


class RedisCounts:
    """Counts that all replicas with the same Redis add to. They expire when they are not needed
    any more.
    """

    def __init__(self, url: str) -> None:
        """Prepare the client; the first use connects.

        Args:
            url: `redis://`, `rediss://` or `unix://`.

        Raises:
            SettingsError: the URL is not valid.
        """
        import redis.asyncio  # noqa: PLC0415  (0.07 s and 9 MB in each process, needed by few)

        self._pool = _pool(url)
        self._count = redis.asyncio.Redis(connection_pool=self._pool).register_script(COUNT)
        self._replaced = False

    async def add(self, caller: str, limits: Sequence[RateLimitItem], count: int) -> list[Refusal]:
        """Count requests of a caller in all limits, or in none if they exceed one; return the
        exceeded ones.

        Raises:
            TimeoutError: no answer within `TIMEOUT_S`.
            Exception: any other failure of Redis or its client.
        """
        names = [f"{KEY_PREFIX}:{{{caller}}}:{limit.get_expiry()}" for limit in limits]
        arguments = [count]
        for limit in limits:
            arguments += [limit.amount, limit.get_expiry()]
        try:
            result = await asyncio.wait_for(self._count(names, arguments), TIMEOUT_S)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no answer within {TIMEOUT_S} s") from None
        damaged, *fields = result
        if damaged and not self._replaced:
            self._replaced = True  # once: whoever writes such values may write many
            name = names[damaged - 1]
            logger.warning(
                "Redis: the value of %s is no count of requests and is replaced, as all further"
                " ones",
                name,
            )
        refusals: list[Refusal] = []
        for index, limit in enumerate(limits):
            first = FIELDS_PER_LIMIT * index
            exceeded, previous, current, rest_ms = fields[first : first + FIELDS_PER_LIMIT]
            if exceeded:
                window = Window(limit, previous, current, rest_ms / 1000)
                refusals.append((max(1, window.wait_s(count)), limit))
        return refusals

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def _pool(url: str) -> Any:
    """Return a `redis.asyncio.BlockingConnectionPool` without connections.

    Raises:
        SettingsError: the URL is not valid.
    """
    import redis.asyncio  # noqa: PLC0415  (as above)

    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_CONNECTIONS,
            timeout=TIMEOUT_S,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=SOCKET_TIMEOUT_S,
            retry=redis.asyncio.retry.Retry(
                redis.backoff.NoBackoff(), 1
            ),  # a restart of Redis closes idle connections
        )
        pool.connection_class(**pool.connection_kwargs)  # checks the options without connecting
    except (ValueError, TypeError, redis.RedisError):
        # The message must not show the URL: it may contain a password.
        expected = "expected a Redis URL such as redis://host:6379/0"
        raise SettingsError(
            f"MOBILE_SAM_REDIS_URL: {expected}, got one that is not valid"
        ) from None
    return pool
