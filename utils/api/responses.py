"""The response models. The OpenAPI document describes answers with them, and tests hold real
answers to them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from utils.errors import Problem

ImageSide = Annotated[int, Field(ge=1, description="pixels of the displayed image")]
Area = Annotated[int, Field(ge=0, description="area of the mask in pixels")]
Four = Annotated[list[int], Field(min_length=4, max_length=4)]
Point = Annotated[list[float], Field(min_length=2, max_length=2, description="`[x, y]`")]
Orientation = Annotated[
    int,
    Field(
        ge=1,
        le=8,
        description="EXIF orientation that turned the stored image into the displayed one; 1: none",
    ),
]
Version = Annotated[int, Field(ge=1, description="a version")]


def absent(**options: Any) -> Any:
    """Return a member that an answer may lack: it is None then, but never null in JSON."""
    return Field(default_factory=lambda: None, **options)


class Weights(BaseModel):
    """Origin of the model's weights."""

    name: str = Field(description="`official`, `builtin`, `random`, or the name of a checkpoint")
    sha256: str = Field(description="SHA-256 in hexadecimal")
    trained: bool = Field(description="false: random weights, for tests")
    note: str = Field(description="description")


class Engine(BaseModel):
    """Runtime and precision of the networks, such as `openvino bf16` or `onnxruntime f32`."""

    encoder: str = Field(description="such as `openvino bf16`")
    decoder: str = Field(description="such as `onnxruntime f32`")


class Image(BaseModel):
    """An encoded image."""

    image_id: str = Field(description="id to send later in place of `input_image`")
    width: ImageSide
    height: ImageSide
    orientation: Orientation
    range: Annotated[list[int], Field(min_length=2, max_length=2)] = absent(
        description="for samples of 16 bits: the values that became 0 and 255"
    )
    region: Four = absent(
        description="`[x0, y0, x1, y1]`: the encoded part, if the request named a `region`"
    )
    weights: Weights
    engine: Engine
    model_version: Version = Field(description="version that was used")
    encode_s: float = absent(
        description="seconds that the encoder took, its queue included; absent for a known image"
    )


class RunLengths(BaseModel):
    """A mask as COCO compressed RLE, as read by pycocotools."""

    size: list[int] = Field(min_length=2, max_length=2, description="`[H, W]` in pixels")
    counts: str = Field(
        description="compressed run lengths in column-major order, as pycocotools writes them"
    )


class Mask(BaseModel):
    """Properties of a mask."""

    object: int = Field(ge=0, description="index of the object in the request, from 0")
    score: float = Field(description="the model's estimate of the mask's IoU, sometimes above 1")
    area: Area
    box: Four = Field(
        description="`[x0, y0, x1, y1]` around the mask in pixels; x1 and y1 are exclusive"
    )
    low_res_mask: str = absent(description="if requested, to send as `mask_input`")


class MaskWithContent(Mask):
    """A mask, in the format of `mask_format`."""

    rle: RunLengths = absent()
    polygon: list[list[list[Point]]] = absent(
        description="`[[outer ring, hole, ...], ...]`, each ring a list of `[x, y]`"
    )
    png: str = absent(description="base64 of a 1-bit PNG")
    rows: list[list[int]] = absent(alias="json", description="rows of 0 and 1, `[H, W]`")


CLIPPED = (
    "with `clip`: the fields that were changed, such as `box` or `prompts[2].pos_coords[0]`; absent"
    " if none"
)


class Result(Image):
    """An image and the properties of its masks."""

    clipped: list[str] = absent(description=CLIPPED)

    masks: list[Mask] = Field(
        description=(
            "one entry per mask, in the order of the `mask` part: by object, candidates together"
        )
    )


class Parts(BaseModel):
    """The parts of the response, in this order"""

    mask: bytes = Field(
        description=(
            "the masks in `mask_format`: `application/octet-stream` for `npy`, `image/png` for"
            " `png`, else `application/json`"
        )
    )
    segmented_image: bytes = absent(
        description="the picture; absent if `segmented_image` is `none`"
    )
    result: Result


class Document(Image):
    """Masks and picture in one document."""

    clipped: list[str] = absent(description=CLIPPED)

    masks: list[MaskWithContent] = Field(
        description="one entry per mask, by object, candidates together"
    )
    segmented_image: str = absent(description="base64 of the picture, if requested")


class Record(BaseModel):
    """An automatic mask."""

    segmentation: RunLengths
    area: Area
    bbox: Four = Field(description="`[x, y, width, height]` around the mask in pixels")
    predicted_iou: float = Field(description="the model's estimate of the mask's IoU")
    point_coords: list[Point] = Field(description="the grid point, in pixels")
    stability_score: float = Field(
        description="IoU between the mask at a raised and at a lowered threshold"
    )
    crop_box: Four = Field(description="`[x, y, width, height]` of the crop, in pixels")


class Everything(Image):
    """An image and all of its masks."""

    masks: list[Record] = Field(description="records in Segment Anything's form")


class Progress(BaseModel):
    """Progress; the last line has the result."""

    done: int = Field(ge=0, description="completed batches of points")
    total: int = Field(ge=0, description="all batches")
    result: Everything = absent()


class Failure(BaseModel):
    """The last line if the work fails."""

    problem: Problem


class QueuedImage(BaseModel):
    """An image of a job."""

    image_id: str = Field(description="id to send later in place of `input_image`")
    state: Literal["queued", "done", "failed", "cancelled"] = Field(description="`done`: encoded")
    problem: Problem = absent(description="why it failed")


class EmbedJob(BaseModel):
    """Images that are encoded in the background."""

    job: str = Field(description="id of the job, for `/embed/{job}`")
    queued: int = Field(ge=0, description="images that wait for their turn")
    done: int = Field(ge=0, description="encoded images")
    failed: int = Field(
        ge=0, description="images that cannot be used, or were evicted before their turn"
    )
    cancelled: int = Field(
        ge=0, description="images that were still queued when the job was cancelled"
    )
    images: list[QueuedImage] = Field(description="the images in the order of the request")


class RequestLimits(BaseModel):
    """Limits of a request."""

    max_body_bytes: int = Field(ge=1, description="bytes of a request body")
    max_image_pixels: int = Field(ge=1, description="pixels of an image")
    max_objects: int = Field(ge=1, description="objects in `prompts`")
    timeout_s: float = Field(
        description="seconds until the 504; a proxy in front must wait 10 s longer"
    )


class Descriptor(BaseModel):
    """How the weights are used."""

    architecture: str = Field(description="kind of the encoder, such as `mobile_sam` or `vit`")
    side: int = Field(description="side of the encoder's square input, in pixels")
    resize: Literal["longest_side", "squash"] = Field(
        description="`squash`: both sides, the image loses its shape"
    )
    normalisation: str = Field(description="`imagenet`, or `min_max`: the image's own range")
    embedding: dict[str, list[int]] = Field(
        description="shape of each tensor of an embedding, in float16"
    )
    single_mask: str = Field(
        description="rule of the single mask, such as `first` or `best_of_three`"
    )
    prompts: list[str] = Field(description="accepted prompts, of `points`, `boxes` and `masks`")
    engines: list[str] = Field(
        description="engines that keep the masks on a CPU, the fastest first"
    )


class Loaded(BaseModel):
    """A loaded version of the model."""

    version: Version
    weights: Weights
    engine: Engine
    descriptor: Descriptor


class Info(BaseModel):
    """Version, model and limits of the service."""

    version: str = Field(description="version of the service")
    weights: Weights | None = Field(description="weights of the newest loaded version")
    engine: Engine | None = Field(description="engine of the newest loaded version")
    triton: str | None = Field(description="version of Triton; null while it starts")
    key_needed: bool = Field(description="whether inference requires an API key")
    local_decoding: bool = Field(description="whether embeddings and the decoder's file are served")
    limits: RequestLimits
    model_versions: list[Version] = Field(
        description="loaded versions, ascending; the last is the default"
    )
    loaded: list[Loaded] = Field(description="the same with weights, engine and descriptor")
    encode_s: float | None = Field(
        description="seconds that the encoder takes: median of recent runs; null: not known"
    )


class Model(BaseModel):
    """A version of a model."""

    name: str = Field(description="name of the model")
    version: Version | None = Field(description="null if it was never loaded")
    state: str = Field(
        description="`READY`, `LOADING`, `UNLOADING` or `UNAVAILABLE`; empty if it was never loaded"
    )
    reason: str = Field(description="why the version is unavailable; else empty")


class ModelList(BaseModel):
    """State of the models in Triton."""

    models: list[Model] = Field(description="one entry per version that is or was loaded")
