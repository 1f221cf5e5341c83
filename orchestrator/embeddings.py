"""Lookup of image embeddings, and encoding of images that have none yet."""

import contextlib
import functools
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from orchestrator import images, reduced
from orchestrator.arrays import BoolMask, Logits
from orchestrator.cache import CachedImage, Embedding, EmbeddingCache, with_crops
from orchestrator.call import ModelRequest
from orchestrator.depth import SampleRange
from orchestrator.masks import area_and_box, upsample
from orchestrator.pictures import Strip
from orchestrator.problems import UnknownImage
from orchestrator.reduced import Reduction
from orchestrator.regions import Box, full_image
from orchestrator.stages import Stage, Stages
from orchestrator.tensors import FRAME_SIDE

if TYPE_CHECKING:
    from orchestrator.redis_tier import RedisTier

FOUND, SHARED, ENCODED = SOURCES = ("found", "shared", "encoded")
"""Sources of an embedding: this machine's cache, Redis, the encoder."""
IMAGE_ID = re.compile("[0-9a-f]{64}")

Encode = Callable[[images.Frame], Embedding]


@dataclass(frozen=True)
class DecodedImage:
    """The pixels of an image."""

    pixels: images.RGB
    """(H, W, 3) uint8 RGB; not to be changed."""
    sample_range: SampleRange | None = None
    """Values of 16-bit samples that became 0 and 255; None for 8 bits."""
    strips: dict[int, Strip] = field(default_factory=dict)
    """Compressed strips of the image as a PNG file, for its next picture
    (`pictures.encode_png`)."""


@dataclass
class EncodedImage:
    """An image with its embedding, which is empty until `Embeddings.encode` returns the image."""

    image_id: str
    """SHA-256 of the image file, in hexadecimal."""
    key: str
    """Cache key: the image id, combined with the owner when API keys are used, and with the box of
    a part."""
    entry: CachedImage
    max_pixels: int
    stages: Stages
    last: dict[str, DecodedImage] = field(default_factory=dict)
    """The image decoded last, by cache key."""
    preprocessing: images.Preprocessing = images.LONGEST_SIDE
    caller: str = ""
    """Caller who gets the space for the image in the cache."""
    source: str = FOUND
    """Source of the embedding."""
    part_of: "EncodedImage | None" = None
    """The image that this is a part of."""
    origin_xy: tuple[int, int] = (0, 0)
    """First pixel of the part in that image."""
    scale_down: bool = False
    """Whether an image of more than `max_pixels` is accepted, and worked on at a smaller size."""
    opened: images.OpenedImage | None = None
    """The file, if its header has been read and its pixels have not."""

    @property
    def size_hw(self) -> tuple[int, int]:
        """Height and width of the displayed image."""
        return self.entry.size_hw

    @property
    def full_image(self) -> "EncodedImage":
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

    @functools.cached_property
    def reduction(self) -> Reduction | None:
        """The grid of the whole image, if it is worked on at a smaller size."""
        size_hw = self.full_image.size_hw
        factor = reduced.factor(size_hw, self.max_pixels) if self.scale_down else None
        return Reduction(size_hw, factor) if factor and factor > 1 else None

    @property
    def grid_hw(self) -> tuple[int, int]:
        """Height and width of the whole image's masks: those of the image, or of its grid."""
        return self.reduction.grid_hw if self.reduction else self.full_image.size_hw

    def in_grid(self, box_xyxy: Box) -> Box:
        """Return a box of the whole image in the frame of its masks."""
        return self.reduction.cells(box_xyxy) if self.reduction else box_xyxy

    @property
    def region_hw(self) -> tuple[int, int]:
        """Height and width of the image's masks, of the part's if this is one."""
        x0, y0, x1, y1 = self.in_grid(self.region)
        return y1 - y0, x1 - x0

    def upsample(self, logits: Logits) -> Logits:
        """Scale low-resolution logits (256, 256) to the size of the image's masks, as
        `masks.upsample`.
        """
        return upsample(logits, self.preprocessing.valid_hw(self.size_hw), self.region_hw)

    def box(self, logits: Logits) -> Box:
        """Return the box around a mask as low-resolution logits (256, 256), in pixels of the
        image.
        """
        scale = np.divide(self.size_hw, self.frame_hw)[::-1] * FRAME_SIDE / len(logits)
        return tuple(np.multiply(area_and_box(logits > 0)[1], np.tile(scale, 2)).tolist())

    def mask(self, logits: Logits, threshold: float) -> BoolMask:
        """Return where low-resolution logits (256, 256) are above a threshold: `grid_hw` bool,
        of the whole image.
        """
        return self.placed(self.upsample(logits) > threshold)

    def placed(self, inside: BoolMask) -> BoolMask:
        """Return a mask of the image, or of this part of it, as one of the whole image: `grid_hw`
        bool.
        """
        if self.part_of is None:
            return inside
        x0, y0, x1, y1 = self.in_grid(self.region)
        mask = np.zeros(self.grid_hw, bool)
        mask[y0:y1, x0:x1] = inside
        return mask

    def open(self, file: bytes) -> images.OpenedImage:
        """Read the header of the image's file; raise `Rejected` if the image cannot be used."""
        open_image = reduced.open_image if self.scale_down else images.open_image
        return open_image(file, self.max_pixels)

    def decode(self) -> DecodedImage:
        """Return the image's pixels, as large as its grid, decoded only if this is not the image
        decoded last.
        """
        decoded = self.last.get(self.key)
        if decoded is None:
            with self.stages(Stage.DECODE):
                opened = self.opened or self.open(bytes(self.entry.file))
                self.opened = None  # a file is decoded once
                load = self.reduction.load if self.reduction else None
                decoded = DecodedImage(*images.decode(opened, load))
            self.last.clear()
            self.last[self.key] = decoded
        return decoded


@dataclass(eq=False)
class Embeddings:
    """The embeddings of images: cached on this machine, shared through Redis, or encoded."""

    cache: EmbeddingCache
    """Cache of this machine."""
    redis: "RedisTier | None"
    """Cache shared by all machines, if there is one."""
    encoder: Encode | None
    """None for a process that answers from `cache` only, so that no request waits for the image of
    another."""
    max_pixels: int
    """Largest width times height of an image."""
    count: Callable[[str], None]
    """Called with the source of each embedding."""
    stages: Stages
    """Timer of the process."""
    preprocessing: images.Preprocessing = images.LONGEST_SIDE
    """Scaling of images for the encoder."""
    refresh: bool = False
    """True to encode images whose embeddings are known, as health checks ask."""

    def __post_init__(self) -> None:
        self._images, self._crops = with_crops(self.cache)
        # Only the last image: the next request for a picture is usually for the same one.
        self._last: dict[str, DecodedImage] = {}

    def open(self, request: ModelRequest) -> EncodedImage:
        """Return the image of a request with its embedding if that is known.

        Of others, only the header is read.

        Owners share nothing: an image id works for its owner only, and the response time does not
        reveal that another owner has sent the same file.

        Raises:
            Rejected: the image cannot be used.
            UnknownImage: no image has this id.
        """
        file, image_id = request.read_file(), request.call.image_id or ""
        if file is not None and not (image_id and request.from_service):
            image_id = hashlib.sha256(file).hexdigest()
        if not IMAGE_ID.fullmatch(image_id):
            raise UnknownImage
        key = (
            hashlib.sha256(f"{request.call.owner} {image_id}".encode()).hexdigest()
            if request.call.owner
            else image_id
        )
        unknown = CachedImage({}, (0, 0), b"")
        image = EncodedImage(
            image_id,
            key,
            unknown,
            self.max_pixels,
            self.stages,
            self._last,
            self.preprocessing,
            request.call.caller,
            scale_down=request.call.scale_down,
        )
        opened = None
        source, entry = self._look_up(image)
        if entry is None:
            if file is None and self.encoder:
                # After a change of weights, the file comes from the cache entries of the old ones.
                file = self._images.image_file(key)
            if file is None:
                raise UnknownImage
            with self.stages(Stage.DECODE):
                opened = image.open(file)
            source, entry = ENCODED, CachedImage({}, opened.size_hw, file, opened.orientation)
        return replace(image, entry=entry, source=source, opened=opened)

    def keep(self, image: EncodedImage) -> None:
        """Keep the file of an image without an embedding, which is encoded later by its id."""
        with self._images.encode_lock(image.key):
            if self._images.get(image.key) is None:
                self._store(image)

    def crop(self, image: EncodedImage, box_xyxy: Box) -> EncodedImage:
        """Return a part of an image with its own embedding if that is known, or all of it.

        Keep the image's file.

        Args:
            image: the whole image; its embedding may be missing.
            box_xyxy: x0, y0, x1, y1 in pixels of the image.
        """
        x0, y0, x1, y1 = box_xyxy
        if tuple(box_xyxy) == full_image(image.size_hw):
            return image
        if image.source == ENCODED and not image.entry.embedding:  # a new image
            self.keep(image)
        key = hashlib.sha256(f"{image.key} {box_xyxy}".encode()).hexdigest()
        unknown = CachedImage({}, (y1 - y0, x1 - x0), b"", image.entry.orientation)
        part = replace(image, key=key, entry=unknown, part_of=image, origin_xy=(x0, y0))
        source, entry = self._look_up(part)
        return replace(part, entry=entry or part.entry, source=source)

    def encode(self, image: EncodedImage) -> EncodedImage:
        """Return an image with its embedding.

        Processes that need the same one at the same time encode it once.

        Raises:
            Rejected: the image cannot be decoded.
            UnknownImage: this process encodes no images.
        """
        refresh = self.refresh and self.encoder is not None
        if refresh or not image.entry.embedding:
            if self.encoder is None:
                raise UnknownImage
            with contextlib.ExitStack() as stack:
                with self.stages(Stage.WAIT):
                    stack.enter_context(self._cache_of(image).encode_lock(image.key))
                # Another process may have encoded the image while this one waited for the lock.
                source, entry = (ENCODED, None) if refresh else self._look_up(image)
                if entry is None or not entry.embedding:
                    source, entry = ENCODED, self._make(self.encoder, image)
            image = replace(image, entry=entry, source=source)
        self.count(image.source)
        return image

    def release_pixels(self) -> None:
        """Release the decoded pixels; the next request for a picture decodes the image again."""
        self._last.clear()

    def _cache_of(self, image: EncodedImage) -> EmbeddingCache:
        return self._crops if image.part_of else self._images

    def _look_up(self, image: EncodedImage) -> tuple[str, CachedImage | None]:
        """Return the entry of an image or a part, if there is one, and where it was found."""
        with self.stages(Stage.CACHE):
            entry = self._usable(self._cache_of(image).get(image.key), image)
        if self.redis is None or image.part_of or (entry and entry.embedding):
            return FOUND, entry
        with self.stages(Stage.REDIS):
            shared = self._usable(self.redis.get(image.key), image)
        # Others may write to Redis, with a valid checksum: the masks would be another image's.
        if (
            shared is None
            or not shared.embedding
            or hashlib.sha256(shared.file).hexdigest() != image.image_id
        ):
            return FOUND, entry
        self._store(replace(image, entry=shared))
        return SHARED, shared

    def _make(self, encode: Encode, image: EncodedImage) -> CachedImage:
        decoded = self._decode(image)
        with self.stages(Stage.RESIZE):
            frame = self._frame(image, decoded.pixels)
        began_at = time.monotonic()
        with self.stages(Stage.ENCODE):
            embedding = encode(frame)
        encode_s = time.monotonic() - began_at
        entry = replace(
            image.entry, embedding=embedding, sample_range=decoded.sample_range, encode_s=encode_s
        )
        self._store(replace(image, entry=entry))
        if self.redis is not None and not image.part_of:
            self.redis.put(image.key, entry)
        return entry

    def _decode(self, image: EncodedImage) -> DecodedImage:
        if not image.reduction:
            return image.full_image.decode()
        with self._images.decode_lock():  # a large image takes much memory
            return image.full_image.decode()

    def _frame(self, image: EncodedImage, pixels: images.RGB) -> images.Frame:
        if image.reduction:
            return self.preprocessing.frame(
                pixels, image.size_hw, image.reduction.scaled_box(image.region)
            )
        x0, y0, x1, y1 = image.region
        return self.preprocessing.frame(np.ascontiguousarray(pixels[y0:y1, x0:x1]))

    def _store(self, image: EncodedImage) -> None:
        with self.stages(Stage.STORE):
            self._cache_of(image).put(image.key, image.entry, image.caller)

    def _usable(self, entry: CachedImage | None, image: EncodedImage) -> CachedImage | None:
        """Return the entry, None if its image has more pixels than are accepted."""
        if entry is None:
            return None
        factor = reduced.factor(entry.size_hw, self.max_pixels)
        return entry if factor == 1 or (factor and image.scale_down) else None
