"""MobileSAM behind BentoML: HTTP here, inference in the Triton that BentoML starts and owns."""

import asyncio

import bentoml
import orjson
from starlette.responses import Response

from utils.api.answers import (
    JsonAnswer,
    MultipartAnswer,
    RequestBody,
    errors_as_problems,
    json_lines,
    json_response,
    segmentation_response,
)
from utils.api.everything import everything as segment_everything
from utils.api.everything import result_of
from utils.api.inputs import image_source, to_prompts
from utils.api.jobs import Job
from utils.api.received import JSON, Received, apply_answer_type, parse_body
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest
from utils.app import build

app = build()
svc = app.service


@svc.api(
    input=RequestBody(SegmentRequest),
    output=MultipartAnswer(mask=bentoml.io.File(), segmented_image=bentoml.io.Image(), result=bentoml.io.JSON()),
    route="/mobile_sam",
)
@errors_as_problems
async def mobile_sam(received: Received) -> Response:
    """Segment objects in an image, given points or boxes; return masks and a picture."""
    request = parse_body(received.fields, SegmentRequest)
    apply_answer_type(request, received.answer_type)
    job = Job(to_prompts(request), request, request.model_version, document=received.answer_type == JSON)
    segmentation = await app.segmenter.segment(image_source(request, received.file), job)
    return segmentation_response(segmentation, request.mask_format, received.answer_type)


@svc.api(input=RequestBody(EmbedRequest), output=JsonAnswer(), route="/embed")
@errors_as_problems
async def embed(received: Received) -> Response:
    """Encode an image before its first prompt; return its id."""
    request = parse_body(received.fields, EmbedRequest)
    return json_response(await app.segmenter.embed(image_source(request, received.file), request.model_version))


@svc.api(input=RequestBody(EverythingRequest), output=JsonAnswer(), route="/everything")
@errors_as_problems
async def everything(received: Received) -> Response:
    """Segment everything in an image; return the records of Segment Anything's automatic mask generator."""
    request = parse_body(received.fields, EverythingRequest)
    image = image_source(request, received.file)
    steps = segment_everything(app.segmenter, image, request, app.settings.max_answer_bytes)
    if request.progress:
        return await json_lines(steps)
    result = await result_of(steps, app.settings.inference_timeout)
    return json_response(await asyncio.to_thread(orjson.dumps, result))
