"""Embeddings in Redis, so that replicas on other machines share them. Optional; its absence never fails a request."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

import redis
from mobile_sam_cache import Entry, InvalidEntry, pack, unpack
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_TIMEOUT = 0.25
TRANSFER_TIMEOUT = 1.0
"""Seconds without a byte after which a transfer is given up; an entry has 2 MB and the image."""
PAUSE = 10.0
"""Seconds for which Redis is left alone after a failure."""
KEEP = 24 * 3600
"""Seconds an entry is kept after it was written; how much Redis holds is its own `maxmemory` to say."""
WAITING = 4
"""Entries that may wait to be written; those that come while so many wait are not."""


class RedisTier:
    """Entries of one set of weights in a Redis."""

    def __init__(self, url: str, fingerprint: str, warn: Callable[[str], None]) -> None:
        """Connect when first needed.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py takes it.
            fingerprint: what tells these weights apart from others.
            warn: is told, once until it works again, that Redis cannot be used.

        Raises:
            ValueError: no such URL.
        """
        self._redis = redis.Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_TIMEOUT,
            socket_timeout=TRANSFER_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
        pool = self._redis.connection_pool
        try:
            pool.connection_class(**pool.connection_kwargs)  # connects to nothing yet, but knows its options
        except TypeError as error:
            raise ValueError(error) from None
        self._prefix, self._warn = f"mobile-sam:{fingerprint[:16]}:", warn
        self._paused_until, self._failing = 0.0, False
        self._waiting: queue.Queue[tuple[str, Entry]] = queue.Queue(WAITING)
        threading.Thread(target=self._write_waiting, name="redis", daemon=True).start()

    def get(self, image_id: str) -> Entry | None:
        """The entry of an image; None where there is none, or Redis does not answer."""
        data = self._careful(partial(self._redis.get, self._prefix + image_id))
        if not isinstance(data, bytes):
            return None
        try:
            return unpack(data)
        except InvalidEntry as error:
            self._warn(f"Redis: {self._prefix}{image_id} cannot be used: {error}")
            return None

    def put(self, image_id: str, entry: Entry) -> None:
        """Write an entry some time soon, in the background."""
        with contextlib.suppress(queue.Full):  # others will encode the image anew: slower, not wrong
            self._waiting.put_nowait((image_id, entry))

    def _write_waiting(self) -> None:
        while True:
            image_id, entry = self._waiting.get()
            self._careful(partial(self._redis.set, self._prefix + image_id, b"".join(pack(entry)), ex=KEEP))

    def _careful(self, work: Callable[[], object]) -> object:
        """The result of `work`; None where Redis fails, which is told once, and while it is left alone after that."""
        if time.monotonic() < self._paused_until:
            return None
        try:
            result = work()
        except Exception as error:  # beside Redis's own errors, those of options that only a first use brings to light
            self._paused_until = time.monotonic() + PAUSE
            if not self._failing:
                self._failing = True
                self._warn(f"Redis cannot be used, embeddings are shared on this machine only: {error}")
            return None
        self._failing = False
        return result
