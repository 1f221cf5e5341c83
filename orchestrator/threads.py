"""Work on one large array in several threads, for libraries that release Python's interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = 2
"""Two threads write a picture in 0.6 of the time of one, and are no slower than one on a busy machine."""

Result = TypeVar("Result")

_pool = ThreadPoolExecutor(THREADS)  # starts its threads at the first use


def map_ranges(work: Callable[[int, int], Result], length: int) -> list[Result]:
    """Split `range(length)` among the threads and return the results of `work(start, stop)` in order."""
    bounds = sorted({length * part // THREADS for part in range(THREADS + 1)})
    return list(_pool.map(work, bounds[:-1], bounds[1:]))
