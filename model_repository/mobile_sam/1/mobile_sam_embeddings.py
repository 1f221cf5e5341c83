"""From an image, or the id of one seen before, to its embedding: looked up where possible, encoded once where not."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import mobile_sam_images as images
import numpy as np
import numpy.typing as npt
from mobile_sam_cache import EmbeddingCache, Entry
from mobile_sam_problems import Rejected
from mobile_sam_redis import RedisTier

FOUND, SHARED, ENCODED = "found", "shared", "encoded"
"""Where an embedding came from: this machine's cache, Redis, the encoder."""
IMAGE_ID = re.compile("[0-9a-f]{64}")

Encode = Callable[[images.Frame], npt.NDArray[np.float16]]


@dataclass
class Known:
    """An image with its embedding."""

    image_id: str
    """SHA-256 of the image file, in hexadecimal."""
    entry: Entry
    max_pixels: int
    decoded: dict[str, images.RGB] = field(default_factory=dict)
    """Pixels at hand, by image id."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the displayed image."""
        return self.entry.size_hw

    def pixels(self) -> images.RGB:
        """(H, W, 3) uint8 RGB, not to be written to; decoded unless this process did so for its last request."""
        if self.image_id not in self.decoded:
            pixels = images.decode(images.open_image(bytes(self.entry.file), self.max_pixels))
            self.decoded.clear()
            self.decoded[self.image_id] = pixels
        return self.decoded[self.image_id]


class Embeddings:
    """Finds the embedding of an image."""

    def __init__(
        self,
        cache: EmbeddingCache,
        redis: RedisTier | None,
        encode: Encode | None,
        max_pixels: int,
        count: Callable[[str], None],
    ) -> None:
        """Put the places to look together.

        Args:
            cache: this machine's.
            redis: what the machines share, if anything.
            encode: the encoder; None for a process that answers from `cache` alone, so that it never keeps a caller
                waiting for another's image.
            max_pixels: largest image.
            count: is told where each embedding came from.
        """
        self._cache, self._redis, self._encode = cache, redis, encode
        self._max_pixels, self._count = max_pixels, count
        # Of one image: who clicks and wants pictures clicks on the same image again.
        self._decoded: dict[str, images.RGB] = {}

    def find(
        self, file: bytes | None, image_id: str | None, check: Callable[[tuple[int, int]], None] | None = None
    ) -> Known:
        """The image with its embedding; several processes that ask for one image at once encode it once.

        Args:
            file: a PNG, JPEG or WebP file; or
            image_id: what an earlier answer called the image.
            check: given height and width of the displayed image before anything is encoded; may raise.

        Raises:
            Rejected: neither or both were given, the image cannot be used, or the id is not known (any more).
        """
        if file is not None:
            if image_id is not None:
                raise _one_of_two("both")
            image_id = hashlib.sha256(file).hexdigest()
        elif image_id is None:
            raise _one_of_two("neither")
        elif not IMAGE_ID.fullmatch(image_id):
            raise _not_cached(image_id[:80])

        def pixels() -> images.RGB:
            if file is None:
                raise _not_cached(image_id)
            decoded = images.decode(images.open_image(file, self._max_pixels))
            if check:
                check((decoded.shape[0], decoded.shape[1]))
            return decoded

        known = self._find(image_id, file or b"", pixels)
        if check:
            check(known.size_hw)
        return known

    def crop(self, known: Known, box_xyxy: tuple[int, int, int, int]) -> Known:
        """A part of an image, with an embedding of its own.

        Args:
            known: the image.
            box_xyxy: x0, y0, x1, y1 in pixels of it.
        """
        x0, y0, x1, y1 = box_xyxy
        if (x0, y0, y1, x1) == (0, 0, *known.size_hw):
            return known
        name = hashlib.sha256(f"{known.image_id} {box_xyxy}".encode()).hexdigest()
        return self._find(name, b"", lambda: np.ascontiguousarray(known.pixels()[y0:y1, x0:x1]))

    def _find(self, image_id: str, file: bytes, pixels: Callable[[], images.RGB]) -> Known:
        known = self._look_up(image_id)
        if known is not None:
            return known
        if self._encode is None:
            raise _not_cached(image_id)
        with self._cache.alone(image_id):
            # While this process waited to be alone, another may have encoded the image.
            known = self._look_up(image_id) or self._fetch(image_id)
            return known or self._make(self._encode, image_id, file, pixels())

    def _look_up(self, image_id: str) -> Known | None:
        entry = self._cache.get(image_id)
        if entry is None:
            return None
        self._count(FOUND)
        return Known(image_id, entry, self._max_pixels, self._decoded)

    def _fetch(self, image_id: str) -> Known | None:
        entry = self._redis.get(image_id) if self._redis else None
        if entry is None:
            return None
        self._cache.put(image_id, entry)
        self._count(SHARED)
        return Known(image_id, entry, self._max_pixels, self._decoded)

    def _make(self, encode: Encode, image_id: str, file: bytes, pixels: images.RGB) -> Known:
        entry = Entry(encode(images.to_frame(pixels)), (pixels.shape[0], pixels.shape[1]), file)
        self._count(ENCODED)
        self._cache.put(image_id, entry)
        if self._redis:
            self._redis.put(image_id, entry)
        if file:  # not of a crop: the next one is cut out of the whole image again
            self._decoded.clear()
            self._decoded[image_id] = pixels
        return Known(image_id, entry, self._max_pixels, self._decoded)


def _not_cached(image_id: str) -> Rejected:
    expected = "the id of an image this service still has; send the image itself again, as input_image"
    errors = [{"field": "image_id", "expected": expected, "got": image_id}]
    return Rejected(404, "image-not-cached", "The image is not known (any more)", errors)


def _one_of_two(got: str) -> Rejected:
    error = {"field": "input_image", "expected": "exactly one of input_image and image_id", "got": got}
    return Rejected(422, "invalid-request", "The request is not valid", [error])
