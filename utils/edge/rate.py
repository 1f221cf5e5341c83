"""Rate limits per caller, in the notation of the library `limits`: `60/minute`, `10 per second;
1000 per hour`.

The strategy is the sliding window counter. It keeps two numbers for each caller and limit, where a
moving window would keep the time of each request. Requests of the previous window count in
proportion to its overlap with the sliding one, as if they had been spread evenly: after a burst at
its end, a caller may get up to twice the limit in the length of a window.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from limits import RateLimitItem, parse_many

from utils.edge.counts import CountTable, Refusal
from utils.edge.redis_counts import RedisCounts
from utils.errors import QueueTooLarge, TooManyRequests
from utils.observability.outage import Outage
from utils.settings import SettingsError

RETRY_INTERVAL_S = 5.0
"""Time without Redis, or without the counts of all workers, after a failure."""
LOCK_TIMEOUT_S, LOCK_RETRY_S = 1.0, 0.0005
"""Time that a request waits until another worker has counted its own, and between two attempts.
A worker on a busy machine may have to wait for a core while it counts; only one that is stopped
takes longer."""
REFUSED_S = 1.0
"""Time after a refusal in which this process refuses the caller again without asking the counts;
the shortest `Retry-After` of a refusal."""
EXAMPLE = "'60/minute' or '10 per second; 1000 per hour'"

Rates = tuple[RateLimitItem, ...]
"""Limits of one caller, the shortest window first."""


def parse_rates(text: str) -> Rates | None:
    """Parse the notation of limits; return None if the text is not valid."""
    try:
        rates = sorted(set(parse_many(text)), key=RateLimitItem.get_expiry)
    except ValueError:
        return None
    return tuple(rates) if rates and all(rate.amount >= 1 for rate in rates) else None


def _in_words(limit: RateLimitItem) -> str:
    """Return a limit, such as "60 requests per minute"."""
    amount, multiples, unit = limit.amount, limit.multiples, limit.GRANULARITY.name
    period = unit if multiples == 1 else f"{multiples} {unit}s"
    return f"{amount} request{'s' * (amount > 1)} per {period}"


class RateLimit:
    """Rate limits of each caller.

    With Redis all replicas count together. Without it, and while it is unavailable or slow, the API
    workers of this machine do, starting at 0.
    """

    def __init__(
        self,
        text: str | None,
        redis_url: str | None,
        *,
        file: Path | None = None,
        rates_of: Callable[[str], Rates | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Parse limits, which are counted in Redis if there is a URL (`redis://`, `rediss://` or
        `unix://`).

        Args:
            text: limits of callers that have none of their own; None: no limit.
            redis_url: URL of Redis; None: no Redis.
            file: counts of all workers; None: this process counts alone.
            rates_of: returns the limits of a key's name, if it has limits of its own.
            clock: the clock of `CountTable`.

        Raises:
            SettingsError: the text or the URL is not valid.
        """
        self._default = None if text is None else parse_rates(text)
        if text is not None and self._default is None:
            raise SettingsError(
                f"MOBILE_SAM_RATE_LIMIT: expected limits such as {EXAMPLE}, got {text!r}"
            )
        self._rates_of, self._clock = rates_of, clock
        self._own = CountTable(None, clock)
        self._shared = None if file is None else CountTable(file, clock)
        self._redis = None if redis_url is None else RedisCounts(redis_url)
        self._redis_store = _Store("Redis is", "each machine")
        self._shared_store = _Store("the counts of all workers are", "each worker")
        self._refused: OrderedDict[str, tuple[float, int, str, int]] = OrderedDict()
        """Time of each caller's last refusal, its number of requests, and its message and
        seconds."""

    async def check(self, name: str, address: str, count: int = 1) -> None:
        """Count requests of a caller, unless they are refused.

        Args:
            name: name of the caller's key; empty where no keys are used.
            address: address of the caller.
            count: number of requests; more than one: further ones of a list of images, whose
                request was counted.

        Raises:
            TooManyRequests: a limit is exceeded.
            QueueTooLarge: so many further requests are never allowed.
        """
        rates = self._rates_of(name) or self._default
        if rates is None:
            return
        smallest = min(rates, key=lambda rate: rate.amount)
        if count > 1 and count >= smallest.amount:
            raise QueueTooLarge(
                f"expected at most {smallest.amount} images in a list, as the rate limit allows"
                f" {_in_words(smallest)}, got {count + 1}; send fewer"
            )
        caller = f"key:{name}" if name else f"address:{address}"
        now = self._clock()
        while self._refused and now - next(iter(self._refused.values()))[0] >= REFUSED_S:
            self._refused.popitem(last=False)
        if caller in self._refused:
            _, refused, detail, seconds = self._refused[caller]
            if count >= refused:
                raise TooManyRequests(detail, seconds)
        refusals = await self._count(caller, rates, count)
        if refusals:
            seconds, limit = max(refusals, key=lambda refusal: refusal[0])
            detail = f"rate limit exceeded ({_in_words(limit)}); retry in {seconds} s"
            self._refused[caller] = now, count, detail, seconds
            self._refused.move_to_end(caller)
            raise TooManyRequests(detail, seconds)

    async def aclose(self) -> None:
        """Close the connections to Redis and the counts."""
        self._own.close()
        if self._shared is not None:
            self._shared.close()
        if self._redis is not None:
            await self._redis.aclose()

    async def _count(self, caller: str, rates: Rates, count: int) -> list[Refusal]:
        """Count requests where all workers do, or else in this process."""
        refusals: list[Refusal] | None = None
        if self._redis is not None:
            in_redis = partial(self._redis.add, caller, rates, count)
            refusals = await self._redis_store.attempt(in_redis)
        if refusals is None and self._shared is not None:
            in_file = partial(_count_in_file, self._shared, caller, rates, count)
            refusals = await self._shared_store.attempt(in_file)
        return self._own.add(caller, rates, count) if refusals is None else refusals


class _Store:
    """A store of counts that is left alone for a while after a failure."""

    def __init__(self, name: str, counting_instead: str) -> None:
        """Name what is unavailable, such as `Redis is`, and who counts alone meanwhile."""
        self._lost = f"{name} unavailable, {counting_instead} counts requests on its own"
        self._outage = Outage(
            f"{name} available again, requests are counted there", logging.WARNING
        )
        self._retry_at = 0.0

    async def attempt(self, work: Callable[[], Awaitable[list[Refusal]]]) -> list[Refusal] | None:
        """Return the result of the work, or None after a failure; during an outage one request
        at a time tries.
        """
        if time.monotonic() < self._retry_at:
            return None
        retrying = self._outage.lasts
        if retrying:
            self._retry_at = time.monotonic() + RETRY_INTERVAL_S
        try:
            refusals = await work()
        except Exception as error:  # not only Redis's own errors: some options fail at first use
            self._outage.begin(f"{self._lost}: {error}")
            self._retry_at = time.monotonic() + RETRY_INTERVAL_S
            return None
        if retrying:
            self._retry_at = 0.0
            self._outage.end()
        return refusals


async def _count_in_file(
    counts: CountTable, caller: str, rates: Rates, count: int
) -> list[Refusal]:
    """Return the result of `CountTable.add`, after waiting for other workers.

    Raises:
        TimeoutError: another worker keeps the lock.
        OSError: the file cannot be opened or written.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            return counts.add(caller, rates, count)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"another worker keeps their lock for more than {LOCK_TIMEOUT_S} s"
                ) from None
        await asyncio.sleep(LOCK_RETRY_S)
