"""KnownImages: which images this machine has worked on lately, so that a new image need not be
looked for first.
"""

import contextlib
import hashlib
import os
from pathlib import Path

KNOWN_IMAGES = "known"
"""Name of the file."""
SLOTS, SLOT_BYTES = 2**18, 8
"""A slot has a digest of one image; 2 MB, of which only the used pages take space. Of 10,000 images
2 % replace another one."""


class KnownImages:
    """A table of images in a file beside their embeddings, which outlives the service as they do.

    It is a hint, read and written without a lock. An image that is missing here has an embedding
    nevertheless if another one took its slot, or if it came from Redis. One that is here has lost
    its embedding if others needed the room.
    """

    def __init__(self, path: Path | None) -> None:
        """Use a file, made at the first `add`, in a folder that exists by then; None for a table of
        this process alone.
        """
        self._path, self._fd = path, -1

    def add(self, owner: str, image_id: str) -> None:
        """Add an owner's image, unless the file cannot be written."""
        offset, digest = _place(owner, image_id)
        with contextlib.suppress(OSError):  # the cache itself reports such a disk
            os.pwrite(self._open(), digest, offset)

    def has(self, owner: str, image_id: str) -> bool:
        """Return whether an owner's image was added; True if the file cannot be used."""
        offset, digest = _place(owner, image_id)
        try:
            return os.pread(self._open(), SLOT_BYTES, offset) == digest
        except OSError:
            return True

    def _open(self) -> int:
        if self._fd < 0:
            if self._path is None:
                self._fd = os.memfd_create("mobile_sam_known_images")
            else:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._fd


def _place(owner: str, image_id: str) -> tuple[int, bytes]:
    """Return the offset of an image's slot, and its digest."""
    digest = hashlib.blake2b(f"{owner} {image_id}".encode(), digest_size=4 + SLOT_BYTES).digest()
    return int.from_bytes(digest[:4], "little") % SLOTS * SLOT_BYTES, digest[4:]
