"""Costly reads that concurrent callers share."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

MAX_AGE_S = 1.0
"""Age up to which a result is used again."""
Result = TypeVar("Result")


class Reading(Generic[Result]):
    """Result of a costly read. One read runs at a time; its result is used again for a moment."""

    def __init__(
        self, read: Callable[..., Awaitable[Result]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Store the function that reads. A read that fails is not used again, but all callers
        that wait share it.
        """
        self._read, self._clock = read, clock
        self._task: asyncio.Task[Result] | None = None
        self._began = 0.0

    async def __call__(self, *arguments: Any, max_age_s: float = MAX_AGE_S) -> Result:
        """Return a result that is not older, or wait for the read that is running or for a new one.

        Args:
            arguments: arguments of the function if it is called now; the result must not depend on
                them.
            max_age_s: age in seconds, counted from the start of the read.
        """
        if self._task is None or (self._task.done() and not self._is_recent(self._task, max_age_s)):
            self._began = self._clock()
            self._task = asyncio.create_task(self._run(arguments))
        # A caller who leaves does not end the read of the others.
        return await asyncio.shield(self._task)

    def _is_recent(self, task: "asyncio.Task[Result]", max_age_s: float) -> bool:
        failed = task.cancelled() or task.exception() is not None
        return not failed and self._clock() - self._began < max_age_s

    async def _run(self, arguments: tuple[Any, ...]) -> Result:
        return await self._read(*arguments)
