"""Segmentation of objects: finds the image's embedding, runs the decoder, builds the answer."""

import base64
import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from PIL import Image

from orchestrator.arrays import Floats, Labels
from orchestrator.cache import CachedImage
from orchestrator.call import ModelRequest, Part
from orchestrator.costs import Workload
from orchestrator.embeddings import EncodedImage
from orchestrator.found import FoundMask, masks_of_logits
from orchestrator.masks import MaskPart, PixelMask, remove_small_regions
from orchestrator.pictures import Picture
from orchestrator.pipeline import Pipeline, Prompts, check_inside, clip, count_points, extents
from orchestrator.polygons import TOLERANCE_PIXELS
from orchestrator.problems import ANSWER_TOO_LARGE, CostlyRequest, rejected
from orchestrator.reduced import GRID_RLE
from orchestrator.regions import AUTO, auto_region, cut, rounded
from orchestrator.stages import Stage, Stages
from orchestrator.tensors import (
    BOX_BOTTOM_RIGHT,
    BOX_TOP_LEFT,
    CANDIDATES,
    LABELS,
    MASK,
    MASK_INPUT,
    MASK_INPUT_OBJECT,
    MASK_SIDE,
    PICTURE,
    POINTS_XY,
    RESULT,
)

OUTPUTS = (MASK.name, PICTURE.name, RESULT.name)
"""Names of the outputs with the parts that `segment` returns."""
DEFAULTS: dict[str, Any] = {
    "multimask_output": False,
    "mask_format": "json",
    "segmented_image": "none",
    "low_res_mask": False,
    "min_mask_region_area": 0,
    "mask_threshold": 0.0,
    "polygon_tolerance": TOLERANCE_PIXELS,
    "clip": False,
    "offer_clip": False,
    "point_paths": (),
    "document": False,
    "embedding": False,
    "encode": True,
}
"""Options of a caller who asks Triton directly, unless given.

- `offer_clip`: whether errors about places outside the image name the option `clip`.
- `point_paths`: names of the points, (N, P), for `clipped` in the result, by default as errors have
  them.
- `document`: the answer is one JSON document.
- `embedding`: the mask part is the embedding, as `embedding_file` makes it.
- `encode`: False to keep the image file only, which is encoded later.
"""
CLIP_HINT = ', or send "clip": true'
"""What an error about a place outside the image says to callers who can send the option `clip`."""
REDUCED_FORMATS = ("rle", "polygon")
"""Mask formats of images that are worked on at a smaller size."""
NO_POINTS, NO_LABELS = np.zeros((0, 1, 2), np.float32), np.zeros((0, 1), np.int32)
WARM_UP_SIZE_HW = (1200, 1800)
"""A typical photograph: 2 megapixels."""


def segment(pipeline: Pipeline, request: ModelRequest) -> tuple[Part, Part, Part]:
    """Return the bodies of the parts `mask`, `segmented_image` and `result`.

    With the option `document` the result has all contents, and the other two are empty. With
    `embedding` the result has the file's `etag`.
    """
    options = {**DEFAULTS, **request.call.options}
    points_xy, labels = request.read(POINTS_XY.name), request.read(LABELS.name)
    if points_xy is None or labels is None:
        points_xy, labels = NO_POINTS, NO_LABELS
    earlier_masks = request.read(MASK_INPUT.name)
    mask_objects = request.read(MASK_INPUT_OBJECT.name)
    pipeline.check_accepted(labels, mask_objects)
    objects, candidates = len(labels), bool(options["multimask_output"])
    workload = Workload(
        objects=objects,
        masks=objects * (CANDIDATES if candidates else 1),
        mask_format=options["mask_format"],
        style=options["segmented_image"],
        low_res=bool(options["low_res_mask"]),
        points=sum(count_points(labels)),
        document=bool(options["document"]),
        remove_small_regions=bool(options["min_mask_region_area"]),
        auto=request.call.region == AUTO,
    )

    image, points_xy, clipped = encoded_part(
        pipeline, request, points_xy, labels, options=options, workload=workload
    )
    if image.reduction and objects:
        check_reduced(options)
    result = describe(
        image, pipeline.identity, has_region=bool(request.call.region), clipped=clipped
    )
    if options["embedding"]:
        file = embedding_file(image, pipeline.identity)
        result["etag"] = hashlib.sha256(file[0]).hexdigest()
        return file, [], [orjson.dumps(result)]
    if not objects:
        return [], [], [orjson.dumps(result)]
    found = pipeline.masks(
        image,
        Prompts(points_xy, labels, earlier_masks, mask_objects),
        candidates=candidates,
        threshold=options["mask_threshold"],
        low_res=bool(options["low_res_mask"]),
    )
    count = None if workload.masks == 1 or workload.document else workload.masks
    mask, picture, records = answer_parts(image, found, options, count, pipeline.max_answer_bytes)
    result["masks"] = [orjson.Fragment(record) for record in records]
    if not workload.document:
        return mask, [picture], [orjson.dumps(result)]
    if picture:
        result["segmented_image"] = base64.b64encode(picture).decode("ascii")
    return [], [], [orjson.dumps(result)]


def describe(
    image: EncodedImage, identity: Mapping[str, Any], *, has_region: bool, clipped: list[str]
) -> dict[str, Any]:
    """Return the members of a result that do not depend on the masks.

    Args:
        image: the image, or the part of it that was encoded.
        identity: weights, engine and version, as `Pipeline.identity`.
        has_region: whether the request names a region.
        clipped: names of the points and of the region that were changed.
    """
    height, width = image.full_image.size_hw
    result: dict[str, Any] = {"image_id": image.image_id, "width": width, "height": height}
    result["orientation"] = image.entry.orientation
    if image.entry.sample_range:
        result["range"] = image.entry.sample_range
    if image.reduction:
        result["reduction"] = image.reduction.factor
    result |= identity
    if has_region:
        result["region"] = image.region
    if clipped:
        result["clipped"] = clipped
    if image.entry.encode_s:
        result["encode_s"] = round(image.entry.encode_s, 3)
    return result


def encoded_part(
    pipeline: Pipeline,
    request: ModelRequest,
    points_xy: Floats,
    labels: Labels,
    *,
    options: Mapping[str, Any],
    workload: Workload,
) -> tuple[EncodedImage, Floats, list[str]]:
    """Return the image of a request, or the region that it names, with its embedding unless it is
    only kept.

    With the option `clip`, points and the region are cut to the image. An automatic region is
    around all prompts. Objects without a box are as large as their masks in the whole image.

    Args:
        pipeline: the pipeline.
        request: the request.
        points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
        labels: (N, P) int32.
        options: as `DEFAULTS`.
        workload: the work for the answer.

    Returns:
        The image, the points in it, and the names of the points and of the region that were
        changed.

    Raises:
        Rejected: the image, the prompts or the region cannot be used, or the answer takes too much.
        CostlyRequest: the request is for another model.
        UnknownImage: no image has this id, or this process encodes none.
    """
    image = pipeline.embeddings.open(request)
    if not options["encode"]:
        pipeline.embeddings.keep(image)
        return image, points_xy, []

    region = request.call.region
    clipped: list[str] = []
    if options["clip"]:
        points_xy, moved = clip(points_xy, labels, image.size_hw)
        clipped = _names(moved, options["point_paths"])
        if region not in (None, AUTO):
            region = cut(region, image.size_hw)
            if list(region) != list(request.call.region):
                clipped.append("region")
    hint = CLIP_HINT if options["offer_clip"] else ""
    check_inside(points_xy, labels, image.size_hw, hint=hint)
    if region == AUTO:
        boxes_xyxy = [*extents(points_xy, labels)]
        has_no_box = ~(labels == BOX_TOP_LEFT).any(axis=1)
        if has_no_box.any():
            image = _encode(pipeline, request, image, workload)
            boxes_xyxy += _mask_boxes(pipeline, image, points_xy[has_no_box], labels[has_no_box])
        box_xyxy = auto_region(np.array(boxes_xyxy), image.size_hw)
        image = pipeline.embeddings.crop(image, box_xyxy)
    elif region is not None:
        box_xyxy = rounded(region, image.size_hw, hint)
        check_inside(points_xy, labels, image.size_hw, box_xyxy)
        image = pipeline.embeddings.crop(image, box_xyxy)
    return _encode(pipeline, request, image, workload), points_xy, clipped


def _encode(
    pipeline: Pipeline, request: ModelRequest, image: EncodedImage, workload: Workload
) -> EncodedImage:
    """Return an image with its embedding, after a look at what the request takes with its size."""
    height, width = image.grid_hw
    reduced_pixels = math.prod(image.full_image.size_hw) if image.reduction else 0
    workload = replace(workload, reduced_pixels=reduced_pixels)
    workload.check((height, width), pipeline.max_answer_bytes)
    is_new = not image.entry.embedding
    if not request.call.accepts_costly and workload.is_costly(height * width, new=is_new):
        raise CostlyRequest
    return pipeline.embeddings.encode(image)


def _mask_boxes(
    pipeline: Pipeline, image: EncodedImage, points_xy: Floats, labels: Labels
) -> list[Any]:
    """Return the box of each object's mask, x0, y0, x1, y1, without those of empty masks."""
    boxes_xyxy = []
    for logits, _ in pipeline.decode(image, Prompts(points_xy, labels), candidates=False):
        if logits.max() > 0:
            boxes_xyxy.append(image.box(logits[0]))
    return boxes_xyxy


def _names(points: Iterable[tuple[int, int]], point_paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of points, each once: the corners of a box have the same one."""
    names = []
    for item, index in points:
        names.append(point_paths[item][index] if point_paths else f"points[{item}][{index}]")
    return list(dict.fromkeys(names))


def check_reduced(options: Mapping[str, Any]) -> None:
    """Check that the answer about an image worked on at a smaller size has only what is made of its
    grid.

    Raises:
        ValueError: it has more, which the service never asks for.
    """
    if (
        not options["document"]
        or options["segmented_image"] != "none"
        or options["mask_format"] not in REDUCED_FORMATS
    ):
        expected = f"a document without a picture, with masks as {' or '.join(REDUCED_FORMATS)}"
        raise ValueError(f"scale_down: expected {expected}")


def embedding_file(image: EncodedImage, identity: Mapping[str, Any]) -> Part:
    """Return an embedding as a safetensors file: its header, then the tensors by the names of the
    decoder's inputs.

    The tensors are float16 in the decoder's shapes. The metadata say how to scale points and masks
    (sizes in pixels; the region is x0, y0, x1, y1), and to which weights the tensors belong.
    """
    (height, width), (frame_height, frame_width) = image.full_image.size_hw, image.frame_hw
    metadata = {
        "image_id": image.full_image.image_id,
        "width": str(width),
        "height": str(height),
        "orientation": str(image.entry.orientation),
        "frame_width": str(frame_width),
        "frame_height": str(frame_height),
        "squashed": str(image.preprocessing.squashes).lower(),
        "region": orjson.dumps(image.region).decode(),
        "weights": identity["weights"]["name"],
        "weights_sha256": identity["weights"]["sha256"],
        "model_version": str(identity["model_version"]),
        "encoder": identity["engine"]["encoder"],
    }
    if image.entry.sample_range:
        metadata["range"] = orjson.dumps(image.entry.sample_range).decode()
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, tensor in image.entry.embedding.items():
        header[name] = {
            "dtype": "F16",
            "shape": tensor.shape,
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)  # aligns the tensors
    tensors = (
        np.ascontiguousarray(tensor, "<f2").data.cast("B")
        for tensor in image.entry.embedding.values()
    )
    return [len(text).to_bytes(8, "little") + text, *tensors]


@dataclass
class AnswerSize:
    """Size of an answer that is being made."""

    max_bytes: int
    nbytes: int = 0

    def add(self, nbytes: int) -> None:
        """Count a piece of the answer.

        Raises:
            Rejected: the answer is too large with it.
        """
        self.nbytes += nbytes
        if self.nbytes > self.max_bytes:
            expected = (
                f"an answer of at most {self.max_bytes} bytes; ask for fewer objects or another"
                " mask_format"
            )
            raise rejected(ANSWER_TOO_LARGE, "prompts", expected, "more")


def answer_parts(
    image: EncodedImage,
    found: Iterable[FoundMask],
    options: Mapping[str, Any],
    count: int | None,
    max_bytes: int,
) -> tuple[Part, bytes, list[bytes]]:
    """Return the mask part, the picture if there is one, and the JSON record of each mask.

    The picture shows the candidate with the highest score of each object. In a document the masks
    are in the records.

    Args:
        image: the image.
        found: the masks, in the order of their objects.
        options: as `DEFAULTS`.
        count: number of masks in the mask part; None: a single one, not in a list.
        max_bytes: largest size of the three together.

    Raises:
        Rejected: they are larger, or the masks do not fit into the format.
    """
    stages, reduction = image.stages, image.reduction
    mask_format, style = options["mask_format"], options["segmented_image"]
    in_records = options["document"]
    min_area = options["min_mask_region_area"]
    if reduction:
        min_area = round(min_area / reduction.factor**2)
    is_grid = reduction is not None and mask_format == "rle"
    member = GRID_RLE if is_grid else mask_format
    masks = MaskPart(mask_format, image.grid_hw, count, options["polygon_tolerance"], reduction)
    answer_size = AnswerSize(max_bytes)
    picture = None
    if style != "none":
        original = image.full_image.decode()
        with stages(Stage.PICTURE):
            picture = Picture(original.pixels, style, original.strips)

    records: list[bytes] = []
    for mask_found in found:
        mask = mask_found.mask
        with stages(Stage.MASK):
            if min_area:
                mask = PixelMask(remove_small_regions(mask.inside, min_area)[0])
            area, box = mask.area, list(mask.box_xyxy)
            if reduction:
                area, box = reduction.area(mask.inside), reduction.box(box)
            record: dict[str, Any] = {
                "object": mask_found.object,
                "score": round(mask_found.score, 4),
                "area": area,
                "box": box,
            }
            if mask_found.logits is not None and options["low_res_mask"]:
                record["low_res_mask"] = npy_base64(mask_found.logits)
            if in_records:
                record[member] = masks.as_json(mask)
            else:
                answer_size.add(masks.add(mask))
            records.append(orjson.dumps(record))
        answer_size.add(len(records[-1]))
        if picture is not None and mask_found.is_best:
            with stages(Stage.PICTURE):
                picture.add(mask.inside)

    picture_file = b""
    if picture is not None:
        with stages(Stage.PICTURE):
            picture_file = picture.encode()
        answer_size.add(len(picture_file))
    with stages(Stage.MASK):
        return [] if in_records else masks.encode(), picture_file, records


def npy_base64(array: npt.NDArray[Any]) -> str:
    """Return an array as base64 of a NumPy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode("ascii")


def warm_up(pipeline: Pipeline | None, shapes: Mapping[str, Sequence[int]]) -> None:
    """Decode and scale an image, and make masks and pictures of it.

    With a pipeline, draw a box on it once.

    The embedding consists of zeros, of these shapes.

    So the first request does not pay for lazy imports and first allocations. Triton warms up the
    networks that it runs (`model_warmup` in their config.pbtxt).
    """
    image = blank_image(shapes)
    image.preprocessing.frame(image.decode().pixels)
    if pipeline:
        pipeline.stages.begin(counts=False)
        points_xy, labels = (
            np.zeros((1, 2, 2), np.float32),
            np.array([[BOX_TOP_LEFT, BOX_BOTTOM_RIGHT]], np.int32),
        )
        list(pipeline.decode(image, Prompts(points_xy, labels), candidates=False))
    logits = np.full((1, MASK_SIDE, MASK_SIDE), -1, np.float32)
    logits[:, 60:120, 80:180] = 1
    for mask_format in ("json", "png", "rle"):
        options = {**DEFAULTS, "mask_format": mask_format, "segmented_image": "overlay"}
        found = masks_of_logits(image, [(logits, np.ones(1, np.float32))], 0.0)
        answer_parts(image, found, options, None, 2**30)


def blank_image(shapes: Mapping[str, Sequence[int]]) -> EncodedImage:
    """Return an image of `WARM_UP_SIZE_HW` whose embedding consists of zeros, of these shapes."""
    height, width = WARM_UP_SIZE_HW
    ramp = np.linspace(0, 255, width, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.broadcast_to(ramp[None, :, None], (height, width, 3))).save(file, "JPEG")
    embedding = {name: np.zeros(shape, np.float16) for name, shape in shapes.items()}
    entry = CachedImage(embedding, WARM_UP_SIZE_HW, file.getvalue())
    return EncodedImage("", "", entry, height * width, Stages(lambda *_: None))
