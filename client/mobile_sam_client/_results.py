"""Result types. Masks and pictures are decoded on first access."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client._errors import NotThisService


class Rle(TypedDict):
    """A mask in COCO's compressed RLE."""

    size: list[int]
    """[height, width] in pixels."""
    counts: str


@dataclass(frozen=True)
class Weights:
    """Origin of the model's weights."""

    name: str
    sha256: str = field(repr=False)
    trained: bool
    note: str = field(repr=False)
    """Remark on the weights for the user, possibly empty."""


@dataclass(frozen=True)
class Engine:
    """Runtimes and precisions of the two networks, such as `onnxruntime f32`."""

    encoder: str
    decoder: str


@dataclass(frozen=True)
class Info:
    """Version, weights, engine and limits of the service."""

    version: str
    weights: Weights | None
    """None if not yet known; every result has it."""
    engine: Engine | None
    """None if not yet known; every result has it."""
    key_needed: bool
    max_body_bytes: int
    """Maximum size of a request; base64 makes an image a third larger than its file."""
    max_image_pixels: int
    """Maximum width times height."""
    max_objects: int
    """Maximum number of prompts per `segment_many`."""
    model_versions: tuple[int, ...]
    """Loaded versions of the model, the last being the default; empty while the service starts."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class ImageResult:
    """Fields common to all results for an image."""

    image_id: str
    """Id of the image at the service."""
    width: int
    """Width of the displayed image in pixels."""
    height: int
    """Height of the displayed image in pixels."""
    weights: Weights
    engine: Engine
    model_version: int
    """Version of the model that computed the result."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MaskResult:
    """A mask, decoded on first access."""

    rle: Rle
    """The mask in COCO's compressed RLE."""
    area: int
    """Number of pixels in the mask."""

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_]:
        """The mask, (H, W) bool, in the frame of the displayed image.

        Raises:
            NotThisService: the RLE is malformed.
        """
        try:
            decoded = coco.decode(self.rle)
        except (ValueError, TypeError) as error:
            raise NotThisService(f"expected a mask in COCO's RLE, but decoding failed: {error}") from error
        # The decoder leaves pixels uninitialized if the RLE is too short.
        if (area := np.count_nonzero(decoded)) != self.area:
            raise NotThisService(f"expected a mask of {self.area} pixels, got an RLE of {area}")
        return np.ascontiguousarray(decoded, bool)

    def _mask_png(self) -> bytes:
        """Return the mask as a black and white PNG file."""
        return encode_png(Image.fromarray(self.mask))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Embedding(ImageResult):
    """An image already encoded by the service.

    It keeps the image file, to upload it again if the service no longer has it.
    """

    file: bytes
    """A PNG, JPEG or WebP file."""

    def __repr__(self) -> str:
        """Return one line, without the file."""
        return f"Embedding(image_id={self.image_id!r}, width={self.width}, height={self.height})"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Segmentation(ImageResult, MaskResult):
    """A segmented object. Notebooks display its picture, or else its mask."""

    score: float
    """The model's estimate of the mask's IoU, 0 to 1."""
    box_xyxy: tuple[int, int, int, int]
    """x0, y0, x1, y1 around the mask in pixels; x1 and y1 are exclusive. All 0 for an empty mask."""
    low_res_mask: npt.NDArray[np.float32] | None = None
    """(256, 256) float32 logits if requested: pass them as `mask_input` to refine the mask."""
    candidates: tuple[Segmentation, ...] = ()
    """The three masks of the object, best first, if `multimask_output` was set."""
    picture_png: bytes | None = None
    """The picture as a PNG file."""

    @cached_property
    def image(self) -> Image.Image | None:
        """Overlay (RGB) or cutout (RGBA) in the displayed image's size, or None if not requested.

        It shows the best mask of every object of the request.
        """
        if self.picture_png is None:
            return None
        picture = Image.open(io.BytesIO(self.picture_png))
        picture.load()
        return picture

    def __repr__(self) -> str:
        """Return one line, without mask and picture."""
        more = f", candidates={len(self.candidates)}" if self.candidates else ""
        return (
            f"Segmentation(score={self.score:.3f}, area={self.area}, box_xyxy={self.box_xyxy}, "
            f"width={self.width}, height={self.height}{more})"
        )

    def _repr_png_(self) -> bytes:
        """Return the PNG that notebooks display."""
        return self._mask_png() if self.picture_png is None else self.picture_png


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Record(MaskResult):
    """One mask of `Everything`, with the fields of Segment Anything's automatic-mask records."""

    bbox_xywh: tuple[int, int, int, int]
    """Left, top, width and height of the mask in pixels."""
    predicted_iou: float
    """The model's estimate of the mask's IoU, 0 to 1."""
    stability_score: float
    """IoU of the mask at a higher and at a lower threshold, 0 to 1."""
    point_coords: tuple[tuple[float, float], ...]
    """Point prompt that produced the mask: one point, x then y, in pixels of the displayed image."""
    crop_box: tuple[int, int, int, int]
    """Left, top, width and height of the crop that the mask was found in, in pixels."""

    def __repr__(self) -> str:
        """Return one line, without the mask."""
        return (
            f"Record(area={self.area}, bbox_xywh={self.bbox_xywh}, predicted_iou={self.predicted_iou:.3f}, "
            f"stability_score={self.stability_score:.3f})"
        )

    def _repr_png_(self) -> bytes:
        """Return the PNG that notebooks display."""
        return self._mask_png()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Everything(ImageResult):
    """All objects found in an image."""

    masks: list[Record]
    """Masks in the service's order; with a single crop, best first."""

    def __repr__(self) -> str:
        """Return one line, without the masks."""
        return f"Everything({len(self.masks)} masks, width={self.width}, height={self.height})"


def encode_png(image: Image.Image) -> bytes:
    """Return a PNG file, encoded for speed rather than size."""
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()
