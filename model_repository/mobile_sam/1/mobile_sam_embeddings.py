"""From an image, or the id of one seen before, to its embedding: looked up where possible, encoded once where not."""

from __future__ import annotations

import contextlib
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
from mobile_sam_stages import CACHE, DECODE, ENCODE, REDIS, RESIZE, STORE, WAIT, Stages

FOUND, SHARED, ENCODED = "found", "shared", "encoded"
"""Where an embedding came from: this machine's cache, Redis, the encoder."""
IMAGE_ID = re.compile("[0-9a-f]{64}")

Encode = Callable[[images.Frame], npt.NDArray[np.float16]]
Source = Callable[[], tuple[bytes, images.RGB]]
"""Gives an image's file, empty for a crop, and its pixels."""


@dataclass
class Known:
    """An image with its embedding."""

    image_id: str
    """SHA-256 of the image file, in hexadecimal."""
    key: str
    """What its embedding is kept under: the id, and with API keys whose image it is."""
    entry: Entry
    max_pixels: int
    stages: Stages
    decoded: dict[str, images.RGB] = field(default_factory=dict)
    """Pixels at hand, by key."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the displayed image."""
        return self.entry.size_hw

    def pixels(self) -> images.RGB:
        """(H, W, 3) uint8 RGB, not to be written to; decoded unless this process did so for its last request."""
        pixels = self.decoded.get(self.key)
        if pixels is None:
            with self.stages(DECODE):
                pixels = images.decode(images.open_image(bytes(self.entry.file), self.max_pixels))
            self.decoded.clear()
            self.decoded[self.key] = pixels
        return pixels


class Embeddings:
    """Finds the embedding of an image."""

    def __init__(
        self,
        cache: EmbeddingCache,
        redis: RedisTier | None,
        encode: Encode | None,
        max_pixels: int,
        count: Callable[[str], None],
        *,
        stages: Stages,
    ) -> None:
        """Put the places to look together.

        Args:
            cache: this machine's.
            redis: what the machines share, if anything.
            encode: the encoder; None for a process that answers from `cache` alone, so that it never keeps a caller
                waiting for another's image.
            max_pixels: largest image.
            count: is told where each embedding came from.
            stages: of the request.
        """
        self._cache, self._redis, self._encode = cache, redis, encode
        self._max_pixels, self._count, self._stages = max_pixels, count, stages
        # Of one image: who clicks and wants pictures clicks on the same image again.
        self._decoded: dict[str, images.RGB] = {}

    def find(
        self,
        file: bytes | None,
        image_id: str | None,
        check: Callable[[tuple[int, int]], None] = lambda _: None,
        owner: str = "",
        check_cost: Callable[[tuple[int, int], bool], None] = lambda *_: None,
    ) -> Known:
        """The image with its embedding; several processes that ask for one image at once encode it once.

        Args:
            file: a PNG, JPEG or WebP file; or
            image_id: what an earlier answer called the image.
            owner: whose image it is. Another owner's is not known, even by its id; nor does the time that an answer
                takes tell whether somebody else has sent the same file.
            check: given height and width of the displayed image before anything is encoded; may raise.
            check_cost: given the same before anything is decoded, or, of an image that is turned, width and height; and
                whether the image is new.

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

        def source() -> tuple[bytes, images.RGB]:
            # New weights know no image yet: those that others know here need not be sent again.
            found = self._cache.file_of(key) if file is None else file
            if found is None:
                raise _not_cached(image_id)
            with self._stages(DECODE):
                image = images.open_image(found, self._max_pixels)
                check_cost((image.height, image.width), True)
                decoded = images.decode(image)
            check((decoded.shape[0], decoded.shape[1]))
            return found, decoded

        key = hashlib.sha256(f"{owner} {image_id}".encode()).hexdigest() if owner else image_id
        known = self._find(image_id, key, source)
        check(known.size_hw)
        check_cost(known.size_hw, False)
        return known

    def forget_pixels(self) -> None:
        """Let go of the pixels at hand; the next request for a picture of that image decodes it again."""
        self._decoded.clear()

    def crop(self, known: Known, box_xyxy: tuple[int, int, int, int]) -> Known:
        """A part of an image, with an embedding of its own.

        Args:
            known: the image.
            box_xyxy: x0, y0, x1, y1 in pixels of it.
        """
        x0, y0, x1, y1 = box_xyxy
        if (x0, y0, y1, x1) == (0, 0, *known.size_hw):
            return known
        name = hashlib.sha256(f"{known.key} {box_xyxy}".encode()).hexdigest()
        return self._find(name, name, lambda: (b"", np.ascontiguousarray(known.pixels()[y0:y1, x0:x1])))

    def _find(self, image_id: str, key: str, source: Source) -> Known:
        entry = self._look_up(key)
        if entry is None:
            if self._encode is None:
                raise _not_cached(image_id)
            with contextlib.ExitStack() as inside:
                with self._stages(WAIT):
                    inside.enter_context(self._cache.alone(key))
                # While this process waited to be alone, another may have encoded the image.
                entry = self._look_up(key) or self._fetch(key) or self._make(self._encode, key, *source())
        return Known(image_id, key, entry, self._max_pixels, self._stages, self._decoded)

    def _look_up(self, key: str) -> Entry | None:
        with self._stages(CACHE):
            entry = self._cache.get(key)
        if entry is not None:
            self._count(FOUND)
        return entry

    def _fetch(self, key: str) -> Entry | None:
        if self._redis is None:
            return None
        with self._stages(REDIS):
            entry = self._redis.get(key)
        if entry is not None:
            self._store(key, entry)
            self._count(SHARED)
        return entry

    def _make(self, encode: Encode, key: str, file: bytes, pixels: images.RGB) -> Entry:
        with self._stages(RESIZE):
            frame = images.to_frame(pixels)
        with self._stages(ENCODE):
            embedding = encode(frame)
        entry = Entry(embedding, (pixels.shape[0], pixels.shape[1]), file)
        self._count(ENCODED)
        self._store(key, entry)
        if self._redis:
            self._redis.put(key, entry)
        if file:  # not of a crop: the next one is cut out of the whole image again
            self._decoded.clear()
            self._decoded[key] = pixels
        return entry

    def _store(self, key: str, entry: Entry) -> None:
        with self._stages(STORE):
            self._cache.put(key, entry)


def _not_cached(image_id: str) -> Rejected:
    expected = "the id of an image this service still has; send the image itself again, as input_image"
    errors = [{"field": "image_id", "expected": expected, "got": image_id}]
    return Rejected(404, "image-not-cached", "The image is not known (any more)", errors)


def _one_of_two(got: str) -> Rejected:
    error = {"field": "input_image", "expected": "exactly one of input_image and image_id", "got": got}
    return Rejected(422, "invalid-request", "The request is not valid", [error])
