"""Gives memory back that a process keeps at hand and has not used for a while."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

UNUSED_S = 15.0
"""Seconds without a request after which a process keeps nothing at hand."""
LIBC = ctypes.CDLL(None)


M_MMAP_THRESHOLD, LARGE_BYTES = -3, 128 * 1024
"""Of mallopt(3): blocks from this size on have pages of their own."""


def give_large_blocks_back() -> None:
    """Have the kernel get every large block back as soon as it is free.

    Left to itself, glibc soon takes blocks of up to 32 MB from its heap, where one that is still used keeps those
    before it: after an answer of 160 MB the heap has a gigabyte. New pages each time cost more than those of the heap.
    """
    mallopt = getattr(LIBC, "mallopt", None)  # glibc's alone
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


class FreeWhenUnused:
    """Watches how long ago the last request was."""

    def __init__(self, forget: Callable[[], None], after_s: float = UNUSED_S) -> None:
        """Begin; a thread of its own looks at the clock.

        Args:
            forget: lets go of what is kept; may be called while the next request begins.
            after_s: seconds without a request.
        """
        self._forget, self._after_s = forget, after_s
        self._used, self._working = Event(), False
        self._last = time.monotonic()
        Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def used(self) -> Iterator[None]:
        """A request is worked on inside."""
        self._working = True
        try:
            yield
        finally:
            self._working, self._last = False, time.monotonic()
            self._used.set()

    def _watch(self) -> None:
        while True:
            self._used.wait()
            left = self._last + self._after_s - time.monotonic()
            if self._working or left > 0:
                time.sleep(max(left, 1.0))
                continue
            self._used.clear()
            self._forget()
            # What is free lies between what is not: without this the kernel does not get it back.
            trim = getattr(LIBC, "malloc_trim", None)  # glibc's alone
            if trim:
                trim(0)
