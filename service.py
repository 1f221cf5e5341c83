# ruff: noqa: E402  (imports at the top)
"""MobileSAM behind BentoML: HTTP here, inference in the Triton that BentoML starts and owns."""

import asyncio
import gc

gc.disable()  # an eighth of the time of the imports, which leave no garbage

import bentoml
import orjson
from starlette.requests import Request
from starlette.responses import Response

from utils.api.accept import JSON
from utils.api.answers import (
    RawJson,
    RawMultipart,
    errors_as_problems,
    image_response,
    json_lines,
    json_response,
    segmentation_response,
)
from utils.api.inputs import image_source, list_of_images, to_inference_request
from utils.api.request_body import receive
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest
from utils.app import build
from utils.inference.everything import everything as segment_everything
from utils.inference.everything import result_of

# The Runner is made in utils/triton/runner.py (`make_runner`, which `build` calls), the InferInputs
# of a request in utils/triton/inputs.py (`infer_input`).
app = build()
svc = app.service
gc.freeze()  # otherwise a full collection searches all modules: 80 ms without an answer
gc.enable()


@svc.api(
    input=RawJson(),
    output=RawMultipart(
        mask=bentoml.io.File(), segmented_image=bentoml.io.Image(), result=bentoml.io.JSON()
    ),
    route="/mobile_sam",
)
@errors_as_problems
async def mobile_sam(request: Request) -> Response:
    """Segment objects in an image, given points or boxes; return masks and a picture."""
    received = await receive(request, SegmentRequest)
    prompts = to_inference_request(received.fields, document=received.answer_type == JSON)
    image = image_source(received.fields, received.file)
    segmentation = await app.segmenter.segment(image, prompts)
    return segmentation_response(segmentation, received.fields.mask_format, received.answer_type)


@svc.api(input=RawJson(), output=RawJson(), route="/embed")
@errors_as_problems
async def embed(request: Request) -> Response:
    """Encode an image before its first prompt and return its id, or queue several and return the
    job.
    """
    received = await receive(request, EmbedRequest)
    if several := list_of_images(received.fields, received.files):
        job = await app.background.add(several, received.fields.model_version)
        return json_response(orjson.dumps(job), 202)
    image = image_source(received.fields, received.file)
    return image_response(await app.segmenter.embed(image, received.fields.model_version))


@svc.api(input=RawJson(), output=RawJson(), route="/everything")
@errors_as_problems
async def everything(request: Request) -> Response:
    """Segment everything in an image; return the records of Segment Anything's automatic mask
    generator.
    """
    received = await receive(request, EverythingRequest)
    image = image_source(received.fields, received.file)
    fields = received.fields
    steps = segment_everything(
        app.segmenter,
        image,
        fields,
        fields.model_version,
        app.settings.max_answer_bytes,
        time_left_s=app.time_left_s,
    )
    if fields.progress:
        return await json_lines(steps)
    result = await result_of(steps, app.timeout_s())
    return image_response(await asyncio.to_thread(orjson.dumps, result))
