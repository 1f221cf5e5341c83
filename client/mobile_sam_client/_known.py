"""The ids by which the service knows images."""

from __future__ import annotations

import threading
from collections import OrderedDict

CAPACITY = 4096


class KnownImages:
    """The service's ids of the files that were used last, by their SHA-256. For any number of threads.

    Ids belong to an API key, hence to one client.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Know no image; remember at most `capacity` of them."""
        self._capacity = capacity
        self._ids: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def id_of(self, sha256: str) -> str | None:
        """The id of a file; None where it is not known."""
        with self._lock:
            if sha256 in self._ids:
                self._ids.move_to_end(sha256)
            return self._ids.get(sha256)

    def remember(self, sha256: str, image_id: str) -> None:
        """Know a file by an id from now on."""
        with self._lock:
            self._ids[sha256] = image_id
            self._ids.move_to_end(sha256)
            while len(self._ids) > self._capacity:
                self._ids.popitem(last=False)
