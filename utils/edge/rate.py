"""Rate limits per caller, in the notation of the library `limits`: `60/minute`, `10 per second; 1000 per hour`.

The strategy is the sliding window counter. It keeps two numbers for each caller and limit, where a moving window would
keep the time of each request. Requests of the previous window count in proportion to its overlap with the sliding one,
as if they had been spread evenly: after a burst at its end, a caller may get up to twice the limit in the length of a
window.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from limits import RateLimitItem, parse_many
from limits.aio.storage import MemoryStorage, RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from utils.api.errors import TooManyRequests
from utils.observability.logs import logger
from utils.settings import SettingsError

REDIS_SOCKET_TIMEOUT_S = 0.2
REDIS_TIMEOUT_S = 0.25
"""Time that a request waits for Redis in total."""
REDIS_RETRY_INTERVAL_S = 5.0
"""Time without Redis after a failure."""
MAX_REDIS_CONNECTIONS = 16
"""Connections to Redis; further requests wait for a free one."""
KEY_PREFIX = "mobile-sam:rate"
REFUSED_S = 1.0
"""Time after a refusal in which this process refuses the caller without counting; no refusal says less."""
MAX_COUNTS = 100_000
"""Counts in memory for each limit, about 30 MB; a caller has at most two."""


_Limit = tuple[RateLimitItem, SlidingWindowCounterRateLimiter]
_Refusal = tuple[int, RateLimitItem]
"""Seconds until the next request is allowed, and the limit that is exceeded."""


class RateLimit:
    """Rate limits of each caller.

    With Redis all processes count together. Without it each process counts on its own, so that N processes allow N
    times the limit; while Redis is unavailable or slow they do so too, starting at 0.
    """

    def __init__(self, text: str, redis_url: str | None) -> None:
        """Parse limits, which are counted in Redis if there is a URL (`redis://`, `rediss://` or `unix://`).

        Raises:
            SettingsError: the text or the URL is not valid.
        """
        try:
            limits = sorted(set(parse_many(text)), key=RateLimitItem.get_expiry)
        except ValueError:
            limits = []
        if not limits or any(limit.amount < 1 for limit in limits):
            expected = "expected limits such as '60/minute' or '10 per second; 1000 per hour'"
            raise SettingsError(f"MOBILE_SAM_RATE_LIMIT: {expected}, got {text!r}")
        self._in_memory = [(item, SlidingWindowCounterRateLimiter(BoundedMemory())) for item in limits]
        self._in_redis: list[_Limit] = []
        self._pool = None if redis_url is None else _redis_pool(redis_url)
        if self._pool is not None:
            # The address is in the pool: the library's own parsing needs a port.
            options: dict[str, Any] = {"key_prefix": KEY_PREFIX, "connection_pool": self._pool}
            storage = RedisStorage("async+redis://", implementation="redispy", **options)
            self._in_redis = [(item, SlidingWindowCounterRateLimiter(storage)) for item in limits]
        self._refused: OrderedDict[str, tuple[float, int, str, int]] = OrderedDict()
        """Time of each caller's last refusal, its number of requests, and its message and seconds."""
        self._redis_retry_at = 0.0
        """Time to try Redis again after a failure; 0 while it works."""

    async def check(self, caller: str, count: int = 1) -> None:
        """Count requests of a caller, unless they are refused.

        Raises:
            TooManyRequests: a limit is exceeded.
        """
        now = time.time()
        while self._refused and not 0 <= now - next(iter(self._refused.values()))[0] < REFUSED_S:
            self._refused.popitem(last=False)
        if caller in self._refused:
            _, refused, detail, seconds = self._refused[caller]
            if count >= refused:
                raise TooManyRequests(detail, seconds)
        refusals = await self._count_in_redis(caller, count)
        if refusals is None:
            refusals = await _count(self._in_memory, caller, count)
        if refusals:
            seconds, limit = max(refusals, key=lambda refusal: refusal[0])
            amount, multiples, unit = limit.amount, limit.multiples, limit.GRANULARITY.name
            period = unit if multiples == 1 else f"{multiples} {unit}s"
            text = f"{amount} request{'s' * (amount > 1)} per {period}"
            detail = f"rate limit exceeded ({text}); retry in {seconds} s"
            self._refused[caller] = now, count, detail, seconds
            self._refused.move_to_end(caller)
            raise TooManyRequests(detail, seconds)

    async def aclose(self) -> None:
        """Close the connections to Redis."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _count_in_redis(self, caller: str, count: int) -> list[_Refusal] | None:
        """Return the result of `_count`, or None without Redis or after a failure, which is logged once per outage."""
        if not self._in_redis or time.monotonic() < self._redis_retry_at:
            return None
        if retrying := self._redis_retry_at > 0:  # one request at a time
            self._redis_retry_at = time.monotonic() + REDIS_RETRY_INTERVAL_S
        try:
            refusals = await asyncio.wait_for(_count(self._in_redis, caller, count), REDIS_TIMEOUT_S)
        except Exception as error:  # not only Redis's own errors: some options fail at first use
            if not self._redis_retry_at:
                reason = f"no answer within {REDIS_TIMEOUT_S} s" if isinstance(error, asyncio.TimeoutError) else error
                logger.warning("Redis is unavailable, each process counts requests on its own: %s", reason)
            self._redis_retry_at = time.monotonic() + REDIS_RETRY_INTERVAL_S
            return None
        if retrying:
            self._redis_retry_at = 0.0
            logger.info("Redis is available again, requests are counted there")
        return refusals


class BoundedMemory(MemoryStorage):
    """Bounded memory for the counts of one limit. Expired counts are dropped as new ones are added.

    `MemoryStorage` itself scans all counts at each request: 37 ms for 100,000 (time a `hit` after as many of other
    callers). Here all counts live equally long, so that the first ones expire first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.expirations: OrderedDict[str, float] = OrderedDict()

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Add to a count and return it; it expires `expiry` seconds after its first increment."""
        now = time.time()
        self.storage[key] += amount
        self.expirations.setdefault(key, now + expiry)
        while True:
            oldest, end = next(iter(self.expirations.items()))
            if end > now and len(self.expirations) <= MAX_COUNTS:
                return self.storage[key]
            await self.clear(oldest)


def _redis_pool(url: str) -> Any:
    """Return a `redis.asyncio.BlockingConnectionPool` without connections.

    Raises:
        SettingsError: the URL is not valid.
    """
    import redis.asyncio  # noqa: PLC0415  (0.07 s and 9 MB in each process, needed by few)

    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=MAX_REDIS_CONNECTIONS,
            timeout=REDIS_TIMEOUT_S,
            socket_timeout=REDIS_SOCKET_TIMEOUT_S,
            socket_connect_timeout=REDIS_SOCKET_TIMEOUT_S,
            retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 1),  # a restart of Redis closes idle connections
        )
        pool.connection_class(**pool.connection_kwargs)  # checks the options without connecting
    except (ValueError, TypeError, redis.RedisError):
        # The message must not show the URL: it may contain a password.
        expected = "expected a Redis URL such as redis://host:6379/0"
        raise SettingsError(f"MOBILE_SAM_REDIS_URL: {expected}, got one that is not valid") from None
    return pool


async def _count(limits: Sequence[_Limit], caller: str, count: int) -> list[_Refusal]:
    """Count requests in all limits, or in none if one of them is exceeded; return the exceeded ones.

    Between the two steps other requests may be counted. Then a refused one counts in shorter limits than the exceeded
    one, never in longer ones.
    """
    full: list[_Limit] = []
    if len(limits) > 1:
        allowed = await asyncio.gather(*(limiter.test(item, caller, cost=count) for item, limiter in limits))
        full = [limit for limit, is_allowed in zip(limits, allowed, strict=True) if not is_allowed]
    for item, limiter in limits:
        if not full and not await limiter.hit(item, caller, cost=count):
            full = [(item, limiter)]
    resets = [((await limiter.get_window_stats(item, caller)).reset_time, item) for item, limiter in full]
    return [(max(1, int(reset - time.time()) + 1), item) for reset, item in resets]
