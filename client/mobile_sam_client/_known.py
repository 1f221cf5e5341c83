"""Image ids assigned by the service, per image file."""

from __future__ import annotations

import threading
from collections import OrderedDict

MAX_IMAGES = 4096


class KnownImages:
    """Thread-safe LRU map from a file's SHA-256 to its image id.

    Image ids are scoped to an API key, so every client has its own map.
    """

    def __init__(self, capacity: int = MAX_IMAGES) -> None:
        """Create an empty map of at most `capacity` images."""
        self._capacity = capacity
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def id_of(self, sha256: str) -> str | None:
        """Return the image id of a file, or None."""
        with self._lock:
            if sha256 in self._ids:
                self._ids.move_to_end(sha256)
            return self._ids.get(sha256)

    def remember(self, sha256: str, image_id: str) -> None:
        """Store the image id of a file."""
        with self._lock:
            self._ids[sha256] = image_id
            self._ids.move_to_end(sha256)
            while len(self._ids) > self._capacity:
                self._ids.popitem(last=False)
