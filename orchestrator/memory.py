"""Return of free memory to the kernel."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

IDLE_TIMEOUT_S = 15.0
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3): free bytes at the heap's end that are returned, size from which blocks
get own pages."""
MIN_LARGE_BLOCK_BYTES = 128 * 1024
MAX_KEPT_BLOCK_BYTES, MAX_KEPT_BYTES = 2**25, 2**27
"""Largest block that is kept, and free bytes at the heap's end that are kept."""


def return_large_blocks_on_free() -> None:
    """Have every large block returned to the kernel as soon as it is freed.

    By default glibc soon serves blocks of up to 32 MB from its heap, where one block in use keeps
    all blocks below it: after an answer of 160 MB the heap holds a gigabyte. The price is that
    large blocks need new pages each time.
    """
    _call_glibc("mallopt", M_MMAP_THRESHOLD, MIN_LARGE_BLOCK_BYTES)


def keep_free_blocks() -> None:
    """Keep most freed blocks for the next request until `trim`.

    By default glibc returns most of them after each image and gets new pages for the next: an
    eighth of the time that scaling takes. `return_large_blocks_on_free` took half of the time of
    automatic masks.
    """
    _call_glibc("mallopt", M_MMAP_THRESHOLD, MAX_KEPT_BLOCK_BYTES)
    _call_glibc("mallopt", M_TRIM_THRESHOLD, MAX_KEPT_BYTES)


def trim() -> None:
    """Return free memory to the kernel: blocks in use keep the heap from shrinking by itself."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(function: str, *values: int) -> None:
    if call := getattr(ctypes.CDLL(None), function, None):  # missing in other C libraries
        call(*values)


class IdleMemoryRelease:
    """Thread that releases memory after a time without requests."""

    def __init__(self, release: Callable[[], None], after_s: float = IDLE_TIMEOUT_S) -> None:
        """Start the thread.

        Args:
            release: drops cached objects; may run while the next request begins.
            after_s: seconds without a request.
        """
        self._release, self._after_s = release, after_s
        self._used, self._working = Event(), False
        self._last = time.monotonic()
        Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Mark the process as busy while the body runs."""
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
            self._release()
            trim()
