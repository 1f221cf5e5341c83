"""MobileSAM behind BentoML: HTTP here, inference in the Triton that BentoML starts and owns."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path
from typing import Any

import bentoml
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from utils import embedded, health, processes, triton
from utils.answers import (
    REFUSAL_LOG,
    JsonAnswer,
    JsonBody,
    MultipartAnswer,
    errors_as_problems,
    json_lines,
    json_response,
    multipart,
)
from utils.bento import disconnect, refuse_to_serve, static_files, triton_address
from utils.deployment import deploy_once, plan_for_this_machine
from utils.edge.admin import Admin
from utils.edge.admission import Admission
from utils.edge.callers import CALLER, REQUEST_ID_HEADER
from utils.edge.counter_files import allocate_counters
from utils.edge.counts import Counts, forget_dead_workers
from utils.edge.guard import Guard
from utils.edge.keys import ADMIN_KEYS, ApiKeys, KeysError
from utils.edge.lifecycle import WorkerLifecycle
from utils.edge.middleware import Edge, Limits
from utils.edge.rate import RateError, RateLimit
from utils.edge.tracing import trace_requests
from utils.edge.triton_metrics import TritonMetrics
from utils.everything import everything as segment_everything
from utils.everything import result_of
from utils.images import image_source
from utils.info import Info, describe
from utils.logs import configure_logging
from utils.models import Models
from utils.openapi import EXAMPLE, EXAMPLE_IMAGE, pages
from utils.page import ROUTE, PageFiles, page_files, page_pages
from utils.plan import PlanError
from utils.prompts import to_prompts
from utils.schemas import EmbedRequest, EverythingRequest, SegmentRequest, parse_body
from utils.segmenter import Job, TritonSegmenter
from utils.settings import Settings, SettingsError

configure_logging()
processes.raise_descriptor_limit()
try:
    settings = Settings.from_environment()
    model_repository = settings.repository_in(Path(__file__).resolve().parent)
    plan = plan_for_this_machine(model_repository, settings)
    keys = ApiKeys.of(settings.api_keys, settings.api_keys_file)
    admin_keys = ApiKeys.of(settings.admin_keys, settings.admin_keys_file, variable=ADMIN_KEYS)
    if keys and admin_keys and admin_keys.overlaps(keys):
        raise KeysError(f"{ADMIN_KEYS}: admin keys must not also be API keys; one key is in both lists")
    rate = RateLimit.of(settings.rate_limit, settings.redis_url) if settings.rate_limit else None
    if settings.metrics == "key" and keys is None:
        raise SettingsError("MOBILE_SAM_METRICS=key needs API keys, but none are set")
except (SettingsError, PlanError, KeysError, RateError) as error:
    raise SystemExit(f"error: {error}") from None

# For the orchestrator, whose own default ignores `cache_dir`.
os.environ.setdefault("MOBILE_SAM_EMBEDDING_CACHE_DIR", str(settings.cache_dir / "embeddings"))

try:
    triton.prepare(settings.cache_dir)
    served = deploy_once(model_repository, plan, settings) if model_repository else settings.model_repository
except triton.TritonSetupError as error:  # `bentoml build` imports this module too, and needs no Triton
    served = settings.model_repository
    refuse_to_serve(str(error))
    logging.getLogger("bentoml.mobile_sam").error("Triton cannot run here: %s", error)

service_info = describe(Path(served) if model_repository else None, settings, key_needed=keys is not None)
if model_repository is None:  # the limit in a remote repository is unknown here; make the one in /info apply
    os.environ.setdefault("MOBILE_SAM_MAX_IMAGE_PIXELS", str(service_info["limits"]["max_image_pixels"]))
triton_runner = embedded.make_runner(served, settings.model_control_mode)
run_dir, shared_file = health.run_dir(), health.shared_file()
# The lambda delays the lookup: the runner has `infer` only once a worker has started.
segmenter = TritonSegmenter(
    lambda **call: triton_runner.infer(**call),  # noqa: PLW0108
    settings.inference_timeout,
    plan.instances(),
)

svc = bentoml.legacy.Service("mobile_sam", runners=[triton_runner])
models = Models(
    partial(triton_address, triton_runner.name),
    triton.restricted_header(),
    (model_repository, Path(served)) if model_repository else None,
    run_dir,
)
triton_metrics = TritonMetrics(triton.metrics_port())
guard = Guard(keys, rate)
admission = Admission(settings.max_requests, 8 * settings.max_body_bytes, settings.max_answer_bytes)
lifecycle = WorkerLifecycle(shared_file, admission, lambda: disconnect(triton_runner), settings.max_connections)


@svc.on_deployment
def check() -> None:
    """Clean up after a killed service, and exit with a one-line error if Triton could not load its models."""
    embedded.clean_up()
    try:
        triton.check_shared_memory()
        if model_repository:
            triton.check_repository(model_repository)
    except triton.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None
    logging.getLogger("bentoml.mobile_sam").info("%s", plan)


@svc.on_startup
def start_worker(_: Any) -> None:
    """Prepare an API worker."""
    allocate_counters()
    forget_dead_workers()
    lifecycle.start()


@svc.on_shutdown
async def stop_worker(_: Any) -> None:
    """Log pending summaries and close connections."""
    REFUSAL_LOG.summarise_ended(all_windows=True)
    await guard.close()


@svc.api(
    input=JsonBody(SegmentRequest, EXAMPLE),
    output=MultipartAnswer(mask=bentoml.io.File(), segmented_image=bentoml.io.Image(), result=bentoml.io.JSON()),
    route="/mobile_sam",
)
@errors_as_problems
async def mobile_sam(body: bytes) -> Response:
    """Segment objects in an image, given points or boxes; return masks and a picture."""
    request = parse_body(body, SegmentRequest)
    prompts, image = to_prompts(request), image_source(request, CALLER.get())
    job = Job(
        prompts,
        request.multimask_output,
        request.mask_format,
        request.segmented_image,
        request.low_res_mask,
        request.model_version,
    )
    return multipart(await segmenter.segment(image, job), request.mask_format)


@svc.api(input=JsonBody(EmbedRequest, EXAMPLE_IMAGE), output=JsonAnswer(), route="/embed")
@errors_as_problems
async def embed(body: bytes) -> Response:
    """Encode an image before its first prompt; return its id."""
    request = parse_body(body, EmbedRequest)
    return json_response(await segmenter.embed(image_source(request, CALLER.get()), request.model_version))


@svc.api(input=JsonBody(EverythingRequest, EXAMPLE_IMAGE), output=JsonAnswer(), route="/everything")
@errors_as_problems
async def everything(body: bytes) -> Response:
    """Segment everything in an image; return the records of Segment Anything's automatic mask generator."""
    request = parse_body(body, EverythingRequest)
    steps = segment_everything(segmenter, image_source(request, CALLER.get()), request, settings.max_answer_bytes)
    if request.progress:
        return await json_lines(step.as_json() async for step in steps)
    return json_response(await result_of(steps, settings.inference_timeout))


svc.mount_asgi_app(PageFiles(), path=ROUTE)
# Outermost first: CORS preflight requests carry no API key.
if settings.cors_origins:
    svc.add_asgi_middleware(
        CORSMiddleware,
        allow_origins=[origin.strip() for origin in settings.cors_origins.split(",")],
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "X-API-Key", REQUEST_ID_HEADER.decode()],
        expose_headers=["Retry-After", REQUEST_ID_HEADER.decode()],
    )
work_paths = frozenset(svc.apis[name].route for name in svc.apis)
trace_requests(svc, work_paths)
svc.add_asgi_middleware(
    Edge,
    work_paths=work_paths,
    file_paths=static_files() | page_files(),
    pages={
        **pages(
            need_key=keys is not None,
            metrics_need_key=settings.metrics == "key",
            admin=admin_keys is not None,
        ),
        **page_pages(),
        "/info": Info(service_info, models.versions, triton_metrics),
    },
    limits=Limits(settings.max_body_bytes, settings.body_timeout, settings.inference_timeout + 5),
    guard=guard,
    admission=admission,
    health=lambda: health.read_health(shared_file),
    counts=Counts(),
    check_room=lambda path, body: segmenter.check_room(body) if path == "/mobile_sam" else None,
    triton_metrics=triton_metrics,
    metrics_need_key=settings.metrics == "key",
    admin=Admin(Guard(admin_keys, None), models, settings.model_control_mode) if admin_keys else None,
)
