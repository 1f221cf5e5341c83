"""MobileSAM behind BentoML: HTTP here, inference in the Triton that BentoML starts and owns."""

from __future__ import annotations

import logging
from pathlib import Path

import bentoml
from starlette.responses import Response

from utils import triton
from utils.answers import Answer, JsonBody, answers_problems, multipart
from utils.edge import Edge
from utils.images import decode_base64
from utils.openapi import EXAMPLE, pages
from utils.prompts import SegmentRequest, parse_body, to_prompt
from utils.segmenter import Job, TritonSegmenter
from utils.settings import Settings

settings = Settings.from_environment()

try:
    triton.prepare(settings.cache_dir)
except triton.TritonSetupError as error:  # no obstacle to `bentoml build`
    logging.getLogger("bentoml.mobile_sam").error("Triton cannot run here: %s", error)

model_repository = Path(__file__).resolve().parent / settings.model_repository
triton_runner = bentoml.triton.Runner(
    "triton",
    str(model_repository),
    tritonserver_type="http",
    cli_args=triton.server_flags(),
)
# The runner has its client, and with it `infer`, only once a worker has started.
segmenter = TritonSegmenter(lambda **call: triton_runner.infer(**call), settings.inference_timeout)  # noqa: PLW0108

svc = bentoml.legacy.Service("mobile_sam", runners=[triton_runner])


@svc.on_deployment
def check() -> None:
    """Remove what a killed service left behind, and end here, in one line, where Triton could not load its models."""
    triton.remove_stale_shared_memory()
    try:
        triton.check_shared_memory()
        triton.check_repository(model_repository)
    except triton.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None


@svc.api(
    input=JsonBody(SegmentRequest, EXAMPLE),
    output=Answer(mask=bentoml.io.File(), segmented_image=bentoml.io.Image(), result=bentoml.io.JSON()),
    route="/mobile_sam",
)
@answers_problems
async def mobile_sam(body: bytes) -> Response:
    """Find one object on an image: clicks or a box in, a mask and a picture out."""
    request = parse_body(body)
    prompt = to_prompt(request)
    image = decode_base64(request.input_image)
    job = Job(image, prompt, request.multimask_output, request.mask_format, request.segmented_image)
    return multipart(await segmenter.segment(job), request.mask_format)


svc.add_asgi_middleware(Edge, max_body_bytes=settings.max_body_bytes, pages=pages(model_repository))
