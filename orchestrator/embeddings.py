"""Lookup of image embeddings, and encoding of images that have none yet."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from orchestrator import images
from orchestrator.cache import Embedding, EmbeddingCache, Entry
from orchestrator.call import CACHE, DECODE, ENCODE, REDIS, RESIZE, STORE, WAIT, Stages
from orchestrator.masks import Logits, Mask, area_and_box, upsample
from orchestrator.pictures import Strip
from orchestrator.problems import UnknownImage
from orchestrator.regions import Box

if TYPE_CHECKING:
    from orchestrator.redis_tier import RedisTier

FOUND, SHARED, ENCODED = "found", "shared", "encoded"
"""Sources of an embedding: this machine's cache, Redis, the encoder."""
IMAGE_ID = re.compile("[0-9a-f]{64}")

Encode = Callable[[images.Frame], Embedding]
Check = Callable[[tuple[int, int]], None]
CheckCost = Callable[[tuple[int, int], bool], None]
Source = Callable[[], tuple[bytes, images.RGB]]
"""Function that returns an image's file (empty for a crop) and its pixels."""


@dataclass(frozen=True)
class DecodedImage:
    """The pixels of an image."""

    pixels: images.RGB
    """(H, W, 3) uint8 RGB; not to be changed."""
    strips: dict[int, Strip] = field(default_factory=dict)
    """Compressed strips of the image as a PNG file, for its next picture (`pictures.encode_png`)."""


@dataclass
class EncodedImage:
    """An image with its embedding."""

    image_id: str
    """SHA-256 of the image file, in hexadecimal."""
    key: str
    """Cache key: the image id, combined with the owner when API keys are used."""
    entry: Entry
    max_pixels: int
    stages: Stages
    last: dict[str, DecodedImage] = field(default_factory=dict)
    """The image decoded last, by cache key."""
    preprocessing: images.Preprocessing = images.LONGEST_SIDE
    part_of: "EncodedImage | None" = None
    """The image that this is a part of."""
    origin_xy: tuple[int, int] = (0, 0)
    """First pixel of the part in that image."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the displayed image."""
        return self.entry.size_hw

    @property
    def whole(self) -> "EncodedImage":
        """The image itself, or the one that this is a part of."""
        return self.part_of or self

    @property
    def region(self) -> Box:
        """The part of the whole image that is encoded."""
        (x0, y0), (height, width) = self.origin_xy, self.size_hw
        return x0, y0, x0 + width, y0 + height

    @property
    def frame_hw(self) -> tuple[int, int]:
        """Height and width of the image in the frame in which the decoder takes points."""
        return self.preprocessing.size_in_frame(self.size_hw)

    def upsample(self, logits: Logits) -> Logits:
        """Scale low-resolution logits (256, 256) to the size of the image, as `masks.upsample`."""
        return upsample(logits, None if self.preprocessing.squashes else self.frame_hw, self.size_hw)

    def box(self, logits: Logits) -> Box:
        """Return the box around a mask as low-resolution logits (256, 256), in pixels of the image."""
        scale = np.divide(self.size_hw, self.frame_hw)[::-1] * images.FRAME / len(logits)
        return tuple(np.multiply(area_and_box(logits > 0)[1], np.tile(scale, 2)).tolist())

    def mask(self, logits: Logits, threshold: float) -> Mask:
        """Return where low-resolution logits (256, 256) are above a threshold: (H, W) bool in the whole image."""
        inside: Mask = self.upsample(logits) > threshold
        if self.part_of is None:
            return inside
        x0, y0, x1, y1 = self.region
        mask = np.zeros(self.part_of.size_hw, bool)
        mask[y0:y1, x0:x1] = inside
        return mask

    def decode(self) -> DecodedImage:
        """Return the image's pixels, decoded only if this is not the image decoded last."""
        decoded = self.last.get(self.key)
        if decoded is None:
            with self.stages(DECODE):
                pixels = images.decode(images.open_image(bytes(self.entry.file), self.max_pixels))
            decoded = DecodedImage(pixels)
            self.last.clear()
            self.last[self.key] = decoded
        return decoded


class Embeddings:
    """The embeddings of images: cached on this machine, shared through Redis, or encoded."""

    def __init__(
        self,
        cache: EmbeddingCache,
        redis: "RedisTier | None",
        encode: Encode | None,
        max_pixels: int,
        count: Callable[[str], None],
        *,
        stages: Stages,
        preprocessing: images.Preprocessing = images.LONGEST_SIDE,
    ) -> None:
        """Combine the sources of embeddings.

        Args:
            cache: cache of this machine.
            redis: cache shared by all machines, if there is one.
            encode: the encoder; None for a process that answers from `cache` only, so that no request waits for the
                image of another.
            max_pixels: largest width times height of an image.
            count: called with the source of each embedding.
            stages: timer of the process.
            preprocessing: scaling of images for the encoder.
        """
        self._cache, self._redis, self._encode = cache, redis, encode
        self._crops = cache.split_crops()
        self._files = cache.of_files()
        self._max_pixels, self._count, self._stages = max_pixels, count, stages
        self._preprocessing = preprocessing
        # Only the last image: the next request for a picture is usually for the same one.
        self._last: dict[str, DecodedImage] = {}
        self.refresh = False
        """True to encode images whose embeddings are known, as health checks ask."""

    def find(
        self,
        file: bytes | None,
        image_id: str,
        check: Check = lambda _: None,
        owner: str = "",
        check_cost: CheckCost = lambda *_: None,
        *,
        caller: str = "",
    ) -> EncodedImage:
        """Return the image with its embedding; processes that need the same image at the same time encode it once.

        Args:
            file: a PNG, JPEG or WebP file; None if the image is known by its id.
            image_id: SHA-256 of the file, in hexadecimal.
            owner: owner of the image. Owners share nothing: an image id works for its owner only, and the response
                time does not reveal that another owner has sent the same file.
            check: called with height and width of the displayed image before it is encoded; may raise.
            check_cost: called with the same before the image is decoded (width and height if EXIF turns it), and with
                whether the image is new; may raise.
            caller: caller who gets the space for a new image in the cache.

        Raises:
            Rejected: the image cannot be used.
            UnknownImage: no image has this id, or this process encodes none.
        """
        key = _key(image_id, owner)
        source = partial(self._read, key, file, check, check_cost)
        encoded = self._find(image_id, source, _Location(key, caller, self._cache, self._redis))
        check(encoded.size_hw)
        check_cost(encoded.size_hw, False)
        return encoded

    def find_file(
        self,
        file: bytes | None,
        image_id: str,
        check: Check = lambda _: None,
        owner: str = "",
        check_cost: CheckCost = lambda *_: None,
        *,
        caller: str = "",
    ) -> EncodedImage:
        """Return the image without encoding it: its embedding is empty if it is not known. A new file is stored.

        Arguments and errors are those of `find`.
        """
        key = _key(image_id, owner)
        with self._stages(CACHE):
            entry = self._usable(self._cache.get(key) or self._files.get(key))
        if entry is None:
            if self._encode is None:
                raise UnknownImage
            entry = self._fetch(_Location(key, caller, self._cache, self._redis))
        if entry is None:
            data, pixels = self._read(key, file, check, check_cost)
            entry = Entry({}, (pixels.shape[0], pixels.shape[1]), data)
            self._store(_Location(key, caller, self._files, None), entry)
            self._keep_pixels(key, pixels)
        check(entry.size_hw)
        check_cost(entry.size_hw, False)
        return self._encoded(image_id, key, entry)

    def release_pixels(self) -> None:
        """Release the decoded pixels; the next request for a picture decodes the image again."""
        self._last.clear()

    def crop(
        self, image: EncodedImage, box_xyxy: Box, caller: str = "", check_cost: CheckCost = lambda *_: None
    ) -> EncodedImage:
        """Return a part of an image with a separate embedding, or all of it with its own.

        Args:
            image: the whole image; its embedding may be missing.
            box_xyxy: x0, y0, x1, y1 in pixels of the image.
            caller: as in `find`.
            check_cost: as in `find`, called again before the image is decoded for a new part.
        """
        x0, y0, x1, y1 = box_xyxy
        is_part = (x0, y0, y1, x1) != (0, 0, *image.size_hw)

        def source() -> tuple[bytes, images.RGB]:
            check_cost(image.size_hw, True)
            pixels = image.decode().pixels
            return (b"", np.ascontiguousarray(pixels[y0:y1, x0:x1])) if is_part else (bytes(image.entry.file), pixels)

        if is_part:
            name = hashlib.sha256(f"{image.key} {box_xyxy}".encode()).hexdigest()
            part = self._find(name, source, _Location(name, caller, self._crops, None))
            return replace(part, part_of=image, origin_xy=(x0, y0))
        if image.entry.embedding:
            return image
        return self._find(image.image_id, source, _Location(image.key, caller, self._cache, self._redis))

    def _find(self, image_id: str, source: Source, location: "_Location") -> EncodedImage:
        refresh = self.refresh and self._encode is not None
        entry = None if refresh else self._look_up(location)
        if entry is None:
            if self._encode is None:
                raise UnknownImage
            with contextlib.ExitStack() as stack:
                with self._stages(WAIT):
                    stack.enter_context(location.cache.encode_lock(location.key))
                # Another process may have encoded the image while this one waited for the lock.
                entry = None if refresh else self._look_up(location) or self._fetch(location)
                entry = entry or self._make(self._encode, location, *source())
        return self._encoded(image_id, location.key, entry)

    def _encoded(self, image_id: str, key: str, entry: Entry) -> EncodedImage:
        return EncodedImage(image_id, key, entry, self._max_pixels, self._stages, self._last, self._preprocessing)

    def _read(self, key: str, file: bytes | None, check: Check, check_cost: CheckCost) -> tuple[bytes, images.RGB]:
        """Return an image's file and its pixels; arguments as in `find`."""
        # After a change of weights, the file comes from the cache entries of the old ones.
        data = self._cache.image_file(key) if file is None else file
        if data is None:
            raise UnknownImage
        with self._stages(DECODE):
            image = images.open_image(data, self._max_pixels)
            check_cost((image.height, image.width), True)
            pixels = images.decode(image)
        check((pixels.shape[0], pixels.shape[1]))
        return data, pixels

    def _keep_pixels(self, key: str, pixels: images.RGB) -> None:
        self._last.clear()
        self._last[key] = DecodedImage(pixels)

    def _look_up(self, location: "_Location") -> Entry | None:
        with self._stages(CACHE):
            entry = self._usable(location.cache.get(location.key))
        if entry is not None:
            self._count(FOUND)
        return entry

    def _fetch(self, location: "_Location") -> Entry | None:
        if location.redis is None:
            return None
        with self._stages(REDIS):
            entry = self._usable(location.redis.get(location.key))
        if entry is not None:
            self._store(location, entry)
            self._count(SHARED)
        return entry

    def _make(self, encode: Encode, location: "_Location", file: bytes, pixels: images.RGB) -> Entry:
        with self._stages(RESIZE):
            frame = self._preprocessing.frame(pixels)
        began_at = time.monotonic()
        with self._stages(ENCODE):
            embedding = encode(frame)
        entry = Entry(embedding, (pixels.shape[0], pixels.shape[1]), file, time.monotonic() - began_at)
        self._count(ENCODED)
        self._store(location, entry)
        if location.redis is not None:
            location.redis.put(location.key, entry)
        if file:  # not a crop: the next crop needs the whole image again
            self._keep_pixels(location.key, pixels)
        return entry

    def _store(self, location: "_Location", entry: Entry) -> None:
        with self._stages(STORE):
            location.cache.put(location.key, entry, location.caller)

    def _usable(self, entry: Entry | None) -> Entry | None:
        """Return the entry, None if its image has more pixels than are accepted."""
        return entry if entry is not None and entry.size_hw[0] * entry.size_hw[1] <= self._max_pixels else None


def _key(image_id: str, owner: str) -> str:
    """Return the cache key of an image.

    Raises:
        UnknownImage: no image has this id.
    """
    if not IMAGE_ID.fullmatch(image_id):
        raise UnknownImage
    return hashlib.sha256(f"{owner} {image_id}".encode()).hexdigest() if owner else image_id


@dataclass(frozen=True)
class _Location:
    key: str
    caller: str
    cache: EmbeddingCache
    redis: "RedisTier | None"
