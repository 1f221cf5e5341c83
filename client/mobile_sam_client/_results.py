"""What the service answers, as Python objects. Masks and pictures are decoded when they are first read."""

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
    """A mask as COCO's compressed run lengths."""

    size: list[int]
    """[height, width] in pixels."""
    counts: str


@dataclass(frozen=True)
class Weights:
    """Where the model's weights come from."""

    name: str
    sha256: str = field(repr=False)
    trained: bool
    note: str = field(repr=False)
    """What to know about them, in a sentence or two."""


@dataclass(frozen=True)
class Engine:
    """What ran the two networks, and in which precision, such as `onnxruntime f32`."""

    encoder: str
    decoder: str


@dataclass(frozen=True)
class Info:
    """What the service says of itself."""

    version: str
    weights: Weights | None
    """None where the service does not know before it is asked for a mask; every answer tells."""
    engine: Engine | None
    """Likewise."""
    key_needed: bool
    max_body_bytes: int
    """Of one request, in which an image takes four thirds of its file's bytes."""
    max_image_pixels: int
    """Width times height."""
    max_objects: int
    """Prompts of one `segment_many`."""
    model_versions: tuple[int, ...]
    """Versions of the model that answer now, the last where none is named; empty while the service starts."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class OfImage:
    """What every answer says of the image it is about."""

    image_id: str
    """By which the service knows the image."""
    width: int
    """Of the displayed image, in pixels."""
    height: int
    """Of the displayed image, in pixels."""
    weights: Weights
    engine: Engine
    model_version: int
    """Of the models that answered."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Masked:
    """A mask, decoded when it is first read."""

    rle: Rle
    """The mask as it came: COCO's compressed run lengths."""
    area: int
    """Pixels of the mask."""

    @cached_property
    def mask(self) -> npt.NDArray[np.bool_]:
        """(H, W) bool, in the frame of the displayed image.

        Raises:
            NotThisService: the run lengths are damaged.
        """
        try:
            decoded = coco.decode(self.rle)
        except (ValueError, TypeError) as error:
            raise NotThisService(f"expected a mask as COCO's run lengths, got what cannot be read: {error}") from error
        # What is missing at the end of run lengths is left to chance by the decoder.
        if (area := np.count_nonzero(decoded)) != self.area:
            raise NotThisService(f"expected a mask of {self.area} pixels, got run lengths of {area}")
        return np.ascontiguousarray(decoded, bool)

    def _mask_png(self) -> bytes:
        """The mask as a black and white PNG file."""
        return encode_png(Image.fromarray(self.mask))


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Embedding(OfImage):
    """An image that the service has encoded: prompts on it are answered quickly.

    It keeps the image's file, to send it again when the service has forgotten it.
    """

    file: bytes
    """A PNG, JPEG or WebP file."""

    def __repr__(self) -> str:
        """In a line, without the file."""
        return f"Embedding(image_id={self.image_id!r}, width={self.width}, height={self.height})"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Segmentation(OfImage, Masked):
    """An object that was found. In a notebook it shows its picture, or else its mask."""

    score: float
    """The model's own estimate of the mask's IoU, 0 to 1."""
    box_xyxy: tuple[int, int, int, int]
    """x0, y0, x1, y1 around the mask in pixels; x1 and y1 lie one pixel outside of it. All 0 for an empty mask."""
    low_res_mask: npt.NDArray[np.float32] | None = None
    """(256, 256) float32 logits where they were asked for: the next request's `mask_input`, to refine the mask."""
    candidates: tuple[Segmentation, ...] = ()
    """Where `multimask_output` was asked for: the three masks of the object, best first."""
    picture_png: bytes | None = None
    """The picture as it came, a PNG file."""

    @cached_property
    def image(self) -> Image.Image | None:
        """The overlay (RGB) or cutout (RGBA), of the displayed image's size; None where it was not asked for.

        It shows the best masks of all objects of one request.
        """
        if self.picture_png is None:
            return None
        picture = Image.open(io.BytesIO(self.picture_png))
        picture.load()
        return picture

    def __repr__(self) -> str:
        """In a line, without mask and picture."""
        more = f", candidates={len(self.candidates)}" if self.candidates else ""
        return (
            f"Segmentation(score={self.score:.3f}, area={self.area}, box_xyxy={self.box_xyxy}, "
            f"width={self.width}, height={self.height}{more})"
        )

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        return self._mask_png() if self.picture_png is None else self.picture_png


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Record(Masked):
    """One of the masks of a whole image, with the members of Segment Anything's automatic-mask records."""

    bbox_xywh: tuple[int, int, int, int]
    """Left, top, width and height of the mask, in pixels."""
    predicted_iou: float
    """The model's own estimate of the mask's IoU, 0 to 1."""
    stability_score: float
    """IoU of the mask at a higher and at a lower threshold, 0 to 1."""
    point_coords: tuple[tuple[float, float], ...]
    """The click that found it: one point, x then y, in pixels of the displayed image."""
    crop_box: tuple[int, int, int, int]
    """Left, top, width and height of the crop it was found on, in pixels."""

    def __repr__(self) -> str:
        """In a line, without the mask."""
        return (
            f"Record(area={self.area}, bbox_xywh={self.bbox_xywh}, predicted_iou={self.predicted_iou:.3f}, "
            f"stability_score={self.stability_score:.3f})"
        )

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        return self._mask_png()


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Everything(OfImage):
    """All objects that were found on an image."""

    masks: list[Record]
    """In the order in which the service keeps them: of a single crop, best first."""

    def __repr__(self) -> str:
        """In a line, without the masks."""
        return f"Everything({len(self.masks)} masks, width={self.width}, height={self.height})"


def encode_png(image: Image.Image) -> bytes:
    """A PNG file, made quickly rather than small."""
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()
