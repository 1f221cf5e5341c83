"""Segmentation of objects: finds the image's embedding, runs the decoder, builds the answer."""

import base64
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from PIL import Image

from orchestrator import images
from orchestrator.cache import EMBEDDING_SHAPE, Entry
from orchestrator.call import MASK, PICTURE, UPSAMPLE, Call, Part, Stages
from orchestrator.costs import Workload
from orchestrator.embeddings import EncodedImage
from orchestrator.masks import Logits, Mask, MaskPart, area_and_box, json_list, remove_small_regions, upsample
from orchestrator.pictures import Picture
from orchestrator.pipeline import Pipeline, check_inside, count_points, mask_inputs
from orchestrator.polygons import TOLERANCE_PIXELS
from orchestrator.problems import ANSWER_TOO_LARGE, CostlyRequest, rejected

OUTPUTS = ("mask", "picture", "result")
WARM_UP_SIZE_HW = (1200, 1800)
"""A typical photograph: 2 megapixels."""


def segment(pipeline: Pipeline, call: Call) -> tuple[Part, Part, Part]:
    """Return the bodies of the parts `mask`, `segmented_image` and `result`.

    With the option `document` the result has all contents, and the other two are empty.
    """
    points_xy, labels = call.read("point_coords"), call.read("point_labels")
    options = call.options
    candidates = bool(options.get("multimask_output", False))
    objects = 0 if points_xy is None or labels is None else len(points_xy)
    workload = Workload(
        objects,
        objects * (3 if candidates else 1),
        options.get("mask_format", "json"),
        options.get("segmented_image", "none"),
        bool(options.get("low_res_mask", False)),
        0 if labels is None else sum(count_points(labels)),
        bool(options.get("document", False)),
        float(options.get("mask_threshold", 0)),
        int(options.get("min_mask_region_area", 0)),
        float(options.get("polygon_tolerance", TOLERANCE_PIXELS)),
    )

    def check(size_hw: tuple[int, int]) -> None:
        if points_xy is not None and labels is not None:
            check_inside(points_xy, labels, size_hw)

    def check_cost(size_hw: tuple[int, int], new: bool) -> None:
        workload.check(size_hw, pipeline.max_answer_bytes)
        if call.light and not workload.is_light(size_hw[0] * size_hw[1], new=new):
            raise CostlyRequest

    image = pipeline.find(call, check, check_cost)
    height, width = image.size_hw
    result = {"image_id": image.image_id, "width": width, "height": height, **pipeline.identity}
    if points_xy is None or labels is None:
        return [], [], [orjson.dumps(result)]
    earlier = mask_inputs(call.read("mask_input"), call.read("mask_input_object"), objects)
    decoded = pipeline.decode(image, points_xy, labels, *earlier, candidates=candidates)
    mask, picture, records = draw(image, workload, decoded, pipeline.max_answer_bytes)
    document = [orjson.dumps(result)[:-1], b',"masks":', *records, b"}"]
    if not workload.document:
        return mask, picture, document
    if picture:
        document[-1:] = [b',"segmented_image":"', *map(base64.b64encode, picture), b'"}']
    return [], [], document


def draw(
    image: EncodedImage,
    workload: Workload,
    decoded: Iterable[tuple[Logits, npt.NDArray[np.float32]]],
    max_bytes: int,
) -> tuple[Part, Part, Part]:
    """Return the mask part, the picture, and the JSON list that describes the masks.

    The picture shows the candidate with the highest score of each object. With `workload.document` the masks are in the
    list.

    Args:
        image: the image.
        workload: number of the masks, how they are made from logits, and their format.
        decoded: logits (K, 256, 256) and predicted IoU (K,) of each object, both float32.
        max_bytes: largest size of the three together.

    Raises:
        Rejected: they are larger, or the masks do not fit into the format.
    """
    frame_hw, stages = images.frame_size_hw(image.size_hw), image.stages
    count = None if workload.masks == 1 or workload.document else workload.masks
    masks = MaskPart(workload.mask_format, image.size_hw, count, workload.polygon_tolerance)
    records: list[bytes] = []
    bytes_left = max_bytes

    def reserve(size: int) -> None:
        nonlocal bytes_left
        bytes_left -= size
        if bytes_left < 0:
            expected = f"an answer of at most {max_bytes} bytes; ask for fewer objects or another mask_format"
            raise rejected(ANSWER_TOO_LARGE, "prompts", expected, "more")

    picture = None
    if workload.style != "none":
        original = image.decode()
        with stages(PICTURE):
            picture = Picture(original.pixels, workload.style, original.strips)
    for index, (logits, scores) in enumerate(decoded):
        best = int(scores.argmax())
        for number, (low_res, score) in enumerate(zip(logits, scores, strict=True)):
            with stages(UPSAMPLE):
                mask: Mask = upsample(low_res, frame_hw, image.size_hw) > workload.threshold
            with stages(MASK):
                if workload.min_region_area:
                    mask, _ = remove_small_regions(mask, workload.min_region_area)
                area, box = area_and_box(mask)
            record: dict[str, Any] = {"object": index, "score": round(float(score), 4), "area": area, "box": box}
            if workload.low_res:
                record["low_res_mask"] = npy_base64(low_res)
            records.append(orjson.dumps(record))
            with stages(MASK):
                if workload.document:
                    records[-1] = records[-1][:-1] + b"," + masks.json_member(mask) + b"}"
                else:
                    reserve(masks.add(mask))
            reserve(len(records[-1]))
            if picture is not None and number == best:
                with stages(PICTURE):
                    picture.add(mask)
    encoded = []
    if picture is not None:
        with stages(PICTURE):
            encoded = [picture.encode()]
        reserve(len(encoded[0]))
    with stages(MASK):
        return [] if workload.document else masks.encode(), encoded, json_list(records)


def npy_base64(array: npt.NDArray[Any]) -> str:
    """Return an array as base64 of a NumPy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode("ascii")


def warm_up() -> None:
    """Decode and scale an image, and make masks and pictures of it.

    So the first request does not pay for lazy imports and first allocations. Triton warms up the networks itself
    (`model_warmup` in their config.pbtxt).
    """
    height, width = WARM_UP_SIZE_HW
    ramp = np.linspace(0, 255, width, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.broadcast_to(ramp[None, :, None], (height, width, 3))).save(file, "JPEG")
    entry = Entry(np.zeros(EMBEDDING_SHAPE, np.float16), WARM_UP_SIZE_HW, file.getvalue())
    image = EncodedImage("", "", entry, height * width, Stages(lambda *_: None))
    images.to_frame(image.decode().pixels)
    logits = np.full((1, 256, 256), -1, np.float32)
    logits[:, 60:120, 80:180] = 1
    for mask_format in ("json", "png", "rle"):
        draw(image, Workload(1, 1, mask_format, "overlay"), [(logits, np.ones(1, np.float32))], 2**30)
