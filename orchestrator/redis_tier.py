"""Embeddings in Redis, shared by replicas on several machines.

Optional; a request never fails because of Redis.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from functools import partial

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from orchestrator.cache import HEADER, CachedImage, InvalidEntry, Layout, pack, unpack

CONNECT_TIMEOUT_S = 0.25
TRANSFER_TIMEOUT_S = 1.0
"""Longest time without a byte. An entry has 2 to 8 MB and the image."""
ANSWER_TIMEOUT_S = 2.0
"""Longest time for an answer, however its bytes arrive. Encoding the image takes about as long."""
RETRY_AFTER_S = 10.0
"""Time after a failure during which Redis is not used."""
MAX_FILE_BYTES = 2**26
"""Size of an image file above which an entry is not shared: nothing larger is read from Redis."""
ENTRY_TTL_S = 24 * 3600
"""Lifetime of an entry. The total size is bounded by Redis's own `maxmemory`."""
MAX_PENDING_WRITES = 4
"""Entries in the write queue; further ones are dropped."""


class RedisTier:
    """Embeddings of one set of weights in Redis."""

    def __init__(self, url: str, layout: Layout, warn: Callable[[str], None]) -> None:
        """Prepare the client; the first use connects.

        Args:
            url: `redis://`, `rediss://` or `unix://`, as redis-py takes it.
            layout: weights and tensors of the embeddings.
            warn: called with a message when Redis fails, once until it works again.

        Raises:
            ValueError: the URL or one of its options is not valid.
        """
        self._redis = redis.Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=TRANSFER_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        pool = self._redis.connection_pool
        try:
            # Validates the options; does not connect.
            pool.connection_class(**pool.connection_kwargs)
        except TypeError as error:
            raise ValueError(error) from None
        self._max_bytes = HEADER.size + layout.nbytes + MAX_FILE_BYTES
        self._layout, self._prefix, self._warn = layout, f"mobile-sam:{layout.weights}:", warn
        self._paused_until, self._failing = 0.0, False
        self._pending: queue.Queue[tuple[str, CachedImage]] = queue.Queue(MAX_PENDING_WRITES)
        threading.Thread(target=self._write_pending, name="redis", daemon=True).start()

    def get(self, image_id: str) -> CachedImage | None:
        """Return the entry of an image, None if there is none or Redis does not answer.

        Whether it is of the image that its name says is for the caller to check, who knows how
        names are made.
        """
        data = self._guarded(partial(self._read, self._prefix + image_id))
        if not data:
            return None
        try:
            if not isinstance(data, bytes):
                raise InvalidEntry("expected a string, got a value of another type")
            return unpack(image_id, data, self._layout)
        except InvalidEntry as error:
            self._warn(f"Redis: {self._prefix}{image_id} cannot be used: {error}")
            return None

    def _read(self, name: str) -> object:
        """Return a value, of a long one the beginning, empty if there is none, True for one that
        is no string.
        """
        try:
            return self._redis.getrange(name, 0, self._max_bytes)
        except redis.ResponseError as error:
            if str(error).startswith("WRONGTYPE"):  # this value is unusable, not Redis
                return True
            raise

    def put(self, image_id: str, entry: CachedImage) -> None:
        """Queue an entry to be written in the background, unless its image file is too large."""
        if len(entry.file) > MAX_FILE_BYTES:
            return
        with contextlib.suppress(queue.Full):  # other replicas will encode the image themselves
            self._pending.put_nowait((image_id, entry))

    def _write_pending(self) -> None:
        while True:
            image_id, entry = self._pending.get()
            data = b"".join(pack(image_id, entry, self._layout))
            self._guarded(partial(self._redis.set, self._prefix + image_id, data, ex=ENTRY_TTL_S))

    def _guarded(self, work: Callable[[], object]) -> object:
        """Return the result of `work`, None if it fails or a failure was less than
        `RETRY_AFTER_S` ago.
        """
        if time.monotonic() < self._paused_until:
            return None
        started = time.monotonic()
        # Makes `work` fail.
        timeout = threading.Timer(ANSWER_TIMEOUT_S, self._redis.connection_pool.disconnect)
        timeout.daemon = True
        timeout.start()
        try:
            result = work()
        except Exception as error:  # not only Redis's errors: some options fail at their first use
            late = time.monotonic() - started >= ANSWER_TIMEOUT_S
            reason = f"no complete answer within {ANSWER_TIMEOUT_S:g} s" if late else error
            self._paused_until = time.monotonic() + RETRY_AFTER_S
            if not self._failing:
                self._failing = True
                self._warn(
                    f"Redis cannot be used, embeddings are shared on this machine only: {reason}"
                )
            return None
        finally:
            timeout.cancel()
        self._failing = False
        return result
