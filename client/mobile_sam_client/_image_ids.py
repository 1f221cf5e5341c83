"""The ids that a service has given to image files."""

import threading

MAX_KNOWN_IMAGES = 4096


class ImageIds:
    """Thread-safe map from the SHA-256 of a file to its image id.

    The least recently used ids are forgotten.

    Image ids are scoped to an API key, so every client has its own map.
    """

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._lock = threading.Lock()

    def find(self, sha256: str) -> str | None:
        """Return the image id of a file, or None if the service is not known to have it."""
        with self._lock:
            image_id = self._ids.pop(sha256, None)
            if image_id is not None:
                self._ids[sha256] = image_id  # now the most recently used
            return image_id

    def remember(self, sha256: str, image_id: str) -> None:
        """Note the image id of a file."""
        with self._lock:
            self._ids.pop(sha256, None)
            self._ids[sha256] = image_id
            if len(self._ids) > MAX_KNOWN_IMAGES:
                least_recent = next(iter(self._ids))
                del self._ids[least_recent]
