"""How often a caller may ask, in the notation of the library `limits`: `60/minute`, `10 per second; 1000 per hour`.

The strategy is the sliding window counter: two numbers for each caller and limit, whatever the limit is, where the
moving window keeps the time of each request. The requests of the window before count by the part of it that still lies
within the last one, as if they had been spread evenly over it. So a caller never has more than the limit at once, not
even where two windows meet; who spends it all at the end of a window has it again bit by bit during the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from limits import RateLimitItem, parse_many
from limits.aio.storage import MemoryStorage, RedisStorage, Storage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from utils.errors import TooManyRequests

SOCKET_TIMEOUT = 0.2
WAIT = 0.25
"""Seconds that a request waits for Redis in all."""
PAUSE = 5.0
"""Seconds for which Redis is left alone after a failure."""
CONNECTIONS = 16
"""To Redis; more requests at once wait for one."""
KEY_PREFIX = "mobile-sam:rate"
MOST_COUNTS = 100_000
"""Counts in memory for each limit, some 30 MB; a caller has two at most."""

logger = logging.getLogger("bentoml.mobile_sam")


class RateError(ValueError):
    """What was set cannot be used; the message says what was expected."""


class RateLimit:
    """Limits that hold for each caller.

    Counts are this process's own, so that N processes let N times the limit through, or those of all processes in
    Redis. While Redis is away or slow each process counts in its own memory, from 0 at first.
    """

    def __init__(self, limits: Sequence[RateLimitItem], pool: BlockingConnectionPool | None = None) -> None:
        """Count nothing yet; `RateLimit.of` reads settings.

        Args:
            limits: all of them hold.
            pool: of connections to Redis, where counts are kept there.
        """
        self._pool = pool
        self._in_memory = [_Limit(item, BoundedMemory()) for item in limits]
        self._in_redis: list[_Limit] = []
        if pool is not None:
            # The pool has the address: that of the library takes no host without a port.
            options: dict[str, Any] = {"implementation": "redispy", "key_prefix": KEY_PREFIX, "connection_pool": pool}
            storage = RedisStorage("async+redis://", **options)
            self._in_redis = [_Limit(item, storage) for item in limits]
        self._redis_away = False
        self._redis_from = 0.0

    @classmethod
    def of(cls, text: str, redis_url: str | None) -> RateLimit:
        """The limits of a text, counted in Redis where there is a URL: `redis://`, `rediss://` or `unix://`.

        Raises:
            RateError: the text is no such limit, or the URL cannot be used.
        """
        try:
            limits = list(dict.fromkeys(parse_many(text)))
        except ValueError:
            limits = []
        if not limits or any(limit.amount < 1 for limit in limits):
            raise RateError(f"expected limits such as '60/minute' or '10 per second; 1000 per hour', got {text!r}")
        if redis_url is None:
            return cls(limits)
        try:
            pool = BlockingConnectionPool.from_url(
                redis_url,
                max_connections=CONNECTIONS,
                timeout=WAIT,
                socket_timeout=SOCKET_TIMEOUT,
                socket_connect_timeout=SOCKET_TIMEOUT,
                retry=Retry(NoBackoff(), 0),
            )
            pool.connection_class(**pool.connection_kwargs)  # connects to nothing yet, but knows its options
        except (ValueError, TypeError, RedisError):
            # Nothing of what came is shown: it may hold a password.
            raise RateError(
                "expected a URL of a Redis such as redis://host:6379/0, got one that cannot be used"
            ) from None
        return cls(limits, pool)

    async def check(self, caller: str) -> None:
        """Count one request of a caller, unless it is refused.

        Args:
            caller: tells this caller apart from others.

        Raises:
            TooManyRequests: it is one more than a limit allows.
        """
        refusals = await self._count_in_redis(caller)
        if refusals is None:
            refusals = await _count(self._in_memory, caller)
        if refusals:
            seconds, limit = max(refusals, key=lambda refusal: refusal[0])
            raise TooManyRequests(
                f"expected at most {limit}, got more; the next is let through in {seconds} s", seconds
            )

    async def close(self) -> None:
        """Close the connections to Redis."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _count_in_redis(self, caller: str) -> list[tuple[int, _Limit]] | None:
        """As `_count`; None where Redis is not used, or fails, which is told once until it works again."""
        if not self._in_redis or time.monotonic() < self._redis_from:
            return None
        trial = self._redis_away
        if trial:  # others do not wait with this one
            self._redis_from = time.monotonic() + PAUSE
        try:
            refusals = await asyncio.wait_for(_count(self._in_redis, caller), WAIT)
        except Exception as error:  # beside Redis's own errors, those of options that only a first use brings to light
            self._redis_from = time.monotonic() + PAUSE
            if not self._redis_away:
                self._redis_away = True
                told = f"no answer within {WAIT} s" if isinstance(error, asyncio.TimeoutError) else error
                logger.warning("Redis cannot be used, each process counts requests of its own: %s", told)
            return None
        if trial:
            self._redis_away = False
            self._redis_from = 0.0
            logger.info("Redis can be used again, requests are counted there")
        return refusals


class BoundedMemory(MemoryStorage):
    """Counts in memory for one limit: those that are over are dropped as new ones come, and there is a most.

    `MemoryStorage` itself goes through all its counts at each request: 37 ms where there are 100,000 (time a `hit`
    after as many of other callers). Here all counts live equally long, so that those which end first stand first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.expirations: OrderedDict[str, float] = OrderedDict()

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to a count, which lives for `expiry` seconds from its first; returns what it is then."""
        now = time.time()
        self.storage[key] += amount
        self.expirations.setdefault(key, now + expiry)
        while True:
            oldest, end = next(iter(self.expirations.items()))
            if end > now and len(self.expirations) <= MOST_COUNTS:
                return self.storage[key]
            await self.clear(oldest)


class _Limit:
    """One limit and where its counts are."""

    def __init__(self, item: RateLimitItem, storage: Storage) -> None:
        self._item = item
        self._limiter = SlidingWindowCounterRateLimiter(storage)

    def __str__(self) -> str:
        """Such as `60 requests per 1 minute`."""
        amount, multiples = self._item.amount, self._item.multiples
        requests, units = "request" + "s" * (amount > 1), self._item.GRANULARITY.name + "s" * (multiples > 1)
        return f"{amount} {requests} per {multiples} {units}"

    async def has_room(self, caller: str) -> bool:
        return await self._limiter.test(self._item, caller)

    async def hit(self, caller: str) -> bool:
        return await self._limiter.hit(self._item, caller)

    async def wait(self, caller: str) -> int:
        """Whole seconds after which the next request has room."""
        stats = await self._limiter.get_window_stats(self._item, caller)
        return max(1, int(stats.reset_time - time.time()) + 1)


async def _count(limits: Sequence[_Limit], caller: str) -> list[tuple[int, _Limit]]:
    """Count one request with all limits, or with none where one has no room for it.

    Only where another process takes the last room between the two steps has a refused request been counted with some.

    Returns:
        Each limit that has no room, after the seconds until it has.
    """
    full = [limit for limit in limits if not await limit.has_room(caller)] if len(limits) > 1 else []
    if not full:
        full = [limit for limit in limits if not await limit.hit(caller)]
    return [(await limit.wait(caller), limit) for limit in full]
