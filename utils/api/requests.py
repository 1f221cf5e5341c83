"""The request models. They declare bounds and descriptions, which the OpenAPI document repeats."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.polygons import TOLERANCE_PIXELS
from utils.inference.everything import MAX_REGION_AREA, AutomaticMasks

MAX_POINTS = 256
MAX_OBJECTS = 256
MAX_IMAGES = 256
"""Images in one list to encode in the background."""
MAX_VERSION = 2**31 - 1
MAX_THRESHOLD = 20
"""The model's logits are rarely beyond this."""

Coordinate = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]
Point = Annotated[
    tuple[Coordinate, Coordinate], Field(description="[x, y] in pixels of the displayed image")
]
Box = tuple[Coordinate, Coordinate, Coordinate, Coordinate]
Region = Box | Literal["auto"]

Version = Annotated[
    int | None, Field(ge=1, le=MAX_VERSION, description="one of `GET /info`. Default: the newest")
]

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

MaskFormat = Literal["json", "npy", "png", "rle", "polygon"]
PictureStyle = Literal["overlay", "cutout", "none"]


class ImageFields(BaseModel):
    """An image, as a file or as the id of an image sent earlier."""

    model_config = STRICT

    input_image: str | None = Field(
        None, description="base64 of a PNG, JPEG or WebP file; a `data:` URL is accepted"
    )
    image_id: str | None = Field(
        None,
        max_length=128,
        description=(
            "the `image_id` of an earlier response, in place of `input_image`. After a 404 "
            "`image-not-cached`, send the image again"
        ),
    )
    region: Box | None = Field(
        None,
        description=(
            "`[x0, y0, x1, y1]`: the part of the image that is encoded, at its full resolution, for"
            " small objects. It is rounded outwards, as the response says. Coordinates and masks"
            " remain those of the whole image"
        ),
    )
    model_version: Version = None


class ObjectFields(BaseModel):
    """One object to segment, described by points, a box, or both."""

    model_config = STRICT

    pos_coords: list[Point] | None = Field(
        None,
        max_length=MAX_POINTS,
        description=(
            "points `[[x, y], ...]` in pixels of the displayed image (turned as browsers do, by its"
            " EXIF)"
        ),
    )
    labels: list[Annotated[int, Field(ge=0, le=3)]] | None = Field(
        None,
        max_length=MAX_POINTS,
        description=(
            "one label per point in `pos_coords`: 0 negative, 1 positive, 2 top-left corner of a"
            " box, 3 bottom-right corner of a box. Default: all 1"
        ),
    )
    neg_coords: list[Point] | None = Field(
        None,
        max_length=MAX_POINTS,
        description="negative points (label 0): pixels outside of the object",
    )
    box: Box | None = Field(
        None,
        description=(
            "`[x0, y0, x1, y1]` around the object; equivalent to two points labelled 2 and 3"
        ),
    )
    mask_input: str | None = Field(
        None,
        description=(
            "an earlier `low_res_mask`, to refine: base64 of a NumPy file with (256, 256) float32"
            " logits"
        ),
    )


class EmbedRequest(ImageFields):
    """An image to encode ahead of the first prompt, or a list of images to encode in the
    background.
    """

    images: list[str] | None = Field(
        None,
        min_length=1,
        max_length=MAX_IMAGES,
        description="several images, each as `input_image`, to encode in the background",
    )
    image_ids: list[Annotated[str, Field(max_length=128)]] | None = Field(
        None,
        min_length=1,
        max_length=MAX_IMAGES,
        description="several `image_id`s, to encode in the background",
    )


class DecoderRequest(BaseModel):
    """The decoder's file, of any loaded version or of certain weights."""

    model_config = STRICT

    weights: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="SHA-256 of an embedding's weights"
    )
    model_version: Version = None


class PromptFields(ObjectFields):
    """The objects to segment: one in the top-level fields, or several in `prompts`."""

    prompts: list[ObjectFields] | None = Field(
        None,
        min_length=1,
        max_length=MAX_OBJECTS,
        description="several objects, in place of the same fields at the top level",
    )


class SegmentOptions(BaseModel):
    """Options of a request; the orchestrator gets them under the same names."""

    multimask_output: bool = Field(
        False,
        description=(
            "false: one mask, for unambiguous prompts; true: three candidates (whole, part and"
            " sub-part), which is better for parts of objects"
        ),
    )
    mask_format: MaskFormat = Field(
        "json",
        description=(
            "encoding of the `mask` part. `json`: nested lists of 0 and 1, `[H, W]`, or `[K, H, W]`"
            " for several masks; `npy`: a NumPy file of the same shape, bool; `png`: a 1-bit image,"
            ' several masks stacked vertically; `rle`: COCO compressed RLE, `{"size": [H, W],'
            ' "counts": "..."}`; `polygon`: `[[outer ring, hole, ...], ...]`, each ring a list of'
            " `[x, y]`, integers at pixel edges. Several masks as `rle` or `polygon` form a list."
            " In a JSON answer each mask is separate, as `rle` (the default), `polygon`, base64"
            " `png` or `json`"
        ),
    )
    segmented_image: PictureStyle = Field(
        "overlay",
        description=(
            "content of the `segmented_image` part, a PNG. `overlay`: the image with the objects"
            " tinted and outlined; `cutout`: RGBA, transparent outside of the objects; `none`: no"
            " such part. The default of JSON and PNG answers is `none`"
        ),
    )
    low_res_mask: bool = Field(
        False,
        description=(
            "return the `low_res_mask` of each mask, to send as `mask_input` with further points"
        ),
    )
    min_mask_region_area: int = Field(
        0,
        ge=0,
        le=MAX_REGION_AREA,
        description="fill holes and remove islands with fewer pixels; the largest island stays",
    )
    mask_threshold: float = Field(
        0.0,
        ge=-MAX_THRESHOLD,
        le=MAX_THRESHOLD,
        description=(
            "logit above which a pixel belongs to the mask: higher values give smaller masks"
        ),
    )
    polygon_tolerance: float = Field(
        TOLERANCE_PIXELS,
        ge=0,
        le=100,
        description=(
            "for `polygon`: how far rings may be from the mask's edge, in pixels; more gives fewer"
            " points"
        ),
    )
    clip: bool = Field(
        False,
        description=(
            "true: boxes and a `region` are cut to the image, and points outside of it are moved to"
            " its nearest edge, in all `prompts`; the result names them in `clipped`. A box without"
            " a part in the image stays an error"
        ),
    )


class SegmentRequest(SegmentOptions, PromptFields, ImageFields):
    """An image and the objects to segment: one in the top-level fields, or several in `prompts`."""

    region: Region | None = Field(  # type: ignore[assignment]
        None,
        description=(
            "`[x0, y0, x1, y1]`: the part of the image that is encoded, at its full resolution, for"
            " small objects; all prompts must be in it, and masks end at its edges. `auto`: a part"
            " around all prompts, or the whole image if they need most of it. It is rounded"
            " outwards, as the response says; a `mask_input` belongs to the `region` of its"
            " response. Coordinates and masks remain those of the whole image"
        ),
    )


class EverythingRequest(AutomaticMasks, ImageFields):
    """An image to segment completely. Parameter names and most defaults match Segment Anything's
    generator.
    """

    progress: bool = Field(
        False, description="stream JSON lines (`application/x-ndjson`); the last one has the result"
    )
