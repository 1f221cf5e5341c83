"""The service without Triton: the same HTTP layer, cache and encodings, with the engines in the API workers.

BentoML starts one process per core, as for the service. Each has one thread per core; engines and libraries release the
GIL while they compute.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bentoml
import numpy as np
import orjson
from starlette.responses import Response

from benchmarks.engines import Array, load
from examples.bentoml_runner.predictor import REPOSITORY
from orchestrator import images
from orchestrator import prompts as own_prompts
from orchestrator.cache import EmbeddingCache
from orchestrator.embeddings import Embeddings, EncodedImage
from orchestrator.masks import MaskPart, area_and_box, upsample
from orchestrator.pictures import Picture
from orchestrator.problems import Rejected
from orchestrator.stages import Stages
from utils.answers import JsonBody, MultipartAnswer, errors_as_problems, multipart
from utils.edge.admission import Admission
from utils.edge.counts import Counts
from utils.edge.guard import Guard
from utils.edge.middleware import Edge, Limits
from utils.errors import ServiceError
from utils.health import Health
from utils.images import ImageSource, image_source
from utils.openapi import EXAMPLE
from utils.prompts import to_prompts
from utils.schemas import SegmentRequest, parse_body
from utils.segmenter import Job, Segmentation

ENCODER, DECODER, CACHE = "BENCHMARK_ENCODER", "BENCHMARK_DECODER", "BENCHMARK_EMBEDDING_CACHE_DIR"
"""Environment variables with the engines and the folder of the embeddings."""
CORES = os.cpu_count() or 1
MAX_PIXELS = 25_000_000
CACHE_BYTES = 2**31


class InProcessSegmenter:
    """Segmenter that runs encoder and decoder in this process."""

    def __init__(self) -> None:
        repository = Path(os.environ[REPOSITORY])
        self._encoder, self._decoder = (
            load(repository / f"mobile_sam_{part}" / "1" / "model.onnx", os.environ[engine])
            for part, engine in (("encoder", ENCODER), ("decoder", DECODER))
        )
        identity = orjson.loads((repository / "mobile_sam" / "1" / "weights.json").read_bytes())
        self._fingerprint = identity["fingerprint"]
        self._weights = {key: identity[key] for key in ("name", "sha256", "trained", "note")}
        self._threads = ThreadPoolExecutor(CORES)
        self._own = threading.local()

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        """Segment an image."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._segment, image, job)

    def _segment(self, image: ImageSource, job: Job) -> Segmentation:
        prompts = job.prompts

        def check(size_hw: tuple[int, int]) -> None:
            own_prompts.check_inside(prompts.points_xy, prompts.labels, size_hw)

        try:
            known = self._embeddings().find(image.file, image.image_id, check)
        except Rejected as rejected:
            raise ServiceError(rejected.encode().decode()) from None
        mask_part = MaskPart(job.mask_format, known.size_hw, None)
        picture = None if job.picture_style == "none" else Picture(known.pixels(), job.picture_style)
        described: list[dict[str, Any]] = []
        for number, (logits, score) in enumerate(self._decode(known, job)):
            mask = upsample(logits, images.frame_size_hw(known.size_hw), known.size_hw) > 0
            mask_part.add(mask)
            area, box = area_and_box(mask)
            described.append({"object": number, "score": round(score, 4), "area": area, "box": box})
            if picture is not None:
                picture.add(mask)
        size = {"width": known.size_hw[1], "height": known.size_hw[0]}
        result = {"image_id": known.image_id, **size, "weights": self._weights, "masks": described}
        return Segmentation(b"".join(mask_part.encode()), picture.encode() if picture else None, orjson.dumps(result))

    def _decode(self, known: EncodedImage, job: Job) -> Iterator[tuple[Array, float]]:
        frame_hw = images.frame_size_hw(known.size_hw)
        coords, labels = own_prompts.to_frame(job.prompts.points_xy, job.prompts.labels, known.size_hw, frame_hw)
        masks, has_mask = own_prompts.mask_inputs(None, None, len(coords))
        inputs: dict[str, Array] = {
            "image_embeddings": known.entry.embedding,
            "point_coords": coords,
            "point_labels": labels,
            "mask_input": masks,
            "has_mask_input": has_mask,
        }
        low_res, scores = self._decoder.run(["single_masks", "iou_predictions"], inputs)
        for logits, score in zip(low_res, scores, strict=True):
            yield logits[0], float(score[0])

    def _encode(self, frame: images.Frame) -> Array:
        inputs: dict[str, Array] = {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}
        return self._encoder.run(["image_embeddings"], inputs)[0]

    def _embeddings(self) -> Embeddings:
        """Return this thread's embeddings; threads share only the files, as the orchestrator's processes do."""
        if not hasattr(self._own, "embeddings"):
            ignore: Callable[[str], None] = lambda _: None  # noqa: E731
            cache = EmbeddingCache(Path(os.environ[CACHE]), self._fingerprint, CACHE_BYTES, ignore)
            stages = Stages(lambda *_: None)
            self._own.embeddings = Embeddings(cache, None, self._encode, MAX_PIXELS, ignore, stages=stages)
        found: Embeddings = self._own.embeddings
        return found


svc = bentoml.legacy.Service("without_triton")
segmenter = InProcessSegmenter()


@svc.api(
    input=JsonBody(SegmentRequest, EXAMPLE),
    output=MultipartAnswer(mask=bentoml.io.File(), segmented_image=bentoml.io.Image(), result=bentoml.io.JSON()),
    route="/mobile_sam",
)
@errors_as_problems
async def mobile_sam(body: bytes) -> Response:
    """Segment objects in an image, given points or boxes; return masks and a picture."""
    request = parse_body(body, SegmentRequest)
    prompts, image = to_prompts(request), image_source(request)
    job = Job(prompts, request.multimask_output, request.mask_format, request.segmented_image, request.low_res_mask)
    return multipart(await segmenter.segment(image, job), request.mask_format)


async def no_metrics() -> bytes:
    """Return no metrics, as there is no Triton."""
    return b""


svc.add_asgi_middleware(
    Edge,
    work_paths=frozenset(api.route for api in svc.apis.values()),
    file_paths=frozenset(),
    pages={},
    limits=Limits(max_body_bytes=2**25, body_timeout_s=30, answer_timeout_s=60),
    guard=Guard(None, None),
    admission=Admission(max_requests=1000, max_body_bytes=2**30),
    health=lambda: Health("ready"),
    counts=Counts(),
    triton_metrics=no_metrics,
)
