"""Composition of the service: makes its parts from the settings and connects them with BentoML."""

import logging
import os
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from utils.api.answers import REFUSAL_LOG
from utils.api.info import Info, describe
from utils.api.jobs import Segmenter
from utils.api.openapi import pages
from utils.bento import (
    check_hooks,
    disable_tracing,
    disconnect,
    refuse_to_serve,
    service_with_document,
    static_files,
    triton_address,
)
from utils.edge.admin import Admin
from utils.edge.admission import ActiveCallers, Admission
from utils.edge.keys import ADMIN_KEYS, ApiKeys, KeysError
from utils.edge.lifecycle import WorkerLifecycle
from utils.edge.middleware import Edge, Limits
from utils.edge.origins import Origins
from utils.edge.protocol import REQUEST_ID_HEADER
from utils.edge.rate import RateError, RateLimit
from utils.integrations import chosen
from utils.integrations.adapter import Adapters
from utils.integrations.service import Service
from utils.observability.counter_files import allocate_counters
from utils.observability.logs import configure_logging
from utils.observability.metrics import Counts, forget_dead_workers, triton_metrics
from utils.observability.traces import trace_requests
from utils.page import ROUTE, PageFiles, page_files, page_pages
from utils.settings import INTEGRATIONS, Settings, SettingsError
from utils.triton import health, installation, processes, repository, versions
from utils.triton.models import Models
from utils.triton.plan import Plan, PlanError
from utils.triton.run import Run, check_shared_memory, clean_up
from utils.triton.runner import CONTROL_APIS, make_runner
from utils.triton.segmenter import TritonSegmenter

logger = logging.getLogger("bentoml.mobile_sam")

ROOT = Path(__file__).resolve().parents[1]
"""Folder of `service.py`."""
WORK_PATHS = frozenset({"/mobile_sam", "/embed", "/everything"})
"""Paths that run inference."""
NO_KEYS = (
    "every machine that reaches {address} can use this service, as it has no API keys: set MOBILE_SAM_API_KEYS_FILE, "
    "or listen (--host) or publish the container's port on 127.0.0.1"
)


@dataclass
class App:
    """Parts of the service that its API functions use."""

    service: Any
    """A `bentoml.legacy.Service`."""
    segmenter: Segmenter
    settings: Settings


def build() -> App:
    """Build the service from the environment variables.

    Raises:
        SystemExit: a one-line error; a setting is invalid, or the service cannot run.
    """
    configure_logging()
    processes.raise_descriptor_limit()
    try:
        settings = Settings.from_environment()
        source = settings.repository_in(ROOT)
        plan = repository.plan_for_this_machine(source, settings)
        keys, rate, admin_keys = _access(settings)
    except (SettingsError, PlanError, KeysError, RateError) as error:
        raise SystemExit(f"error: {error}") from None
    served = _served_repository(source, plan, settings)
    need_key, metrics_need_key = keys is not None, settings.metrics == "key"
    service_info = describe(Path(served) if source else None, settings, key_needed=need_key)
    # For the orchestrator: its own default ignores `cache_dir`.
    os.environ.setdefault("MOBILE_SAM_EMBEDDING_CACHE_DIR", str(settings.cache_dir / "embeddings"))
    if source is None:  # the limit in a remote repository is unknown here; make the one in /info apply
        os.environ.setdefault("MOBILE_SAM_MAX_IMAGE_PIXELS", str(service_info["limits"]["max_image_pixels"]))
    runner = make_runner(
        served,
        settings.model_control_mode,
        # Inference too: a web page can send simple requests to any port, and deep JSON crashes old Tritons.
        restricted=f"{CONTROL_APIS},inference",
        ready_line=_ready_line(source, plan),
        public_warning="" if need_key else NO_KEYS,
    )
    run = Run.current()
    documents = pages(need_key=need_key, metrics_need_key=metrics_need_key, admin=admin_keys is not None)
    service = service_with_document("mobile_sam", runner, bytes(documents["/docs.json"].body))

    def infer(*, headers: dict[str, str], **call: Any) -> Any:
        # The runner has `infer` only once a worker has started.
        return runner.infer(headers={**headers, **run.key_header}, **call)

    report_fault = partial(health.report_fault, Path(run.shared_file))
    segmenter = TritonSegmenter(infer, settings.inference_timeout, plan.instances, report_fault)
    app = App(service, segmenter, settings)
    admission = Admission(settings.max_requests, 8 * settings.max_body_bytes, settings.max_answer_bytes)
    models = Models(
        partial(triton_address, runner.name),
        run.key_header,
        (source, Path(served)) if source else None,
        Path(run.folder),
    )
    read_health = partial(health.read_health, Path(run.shared_file))
    read_triton_metrics = partial(triton_metrics, run.metrics_port)
    cors_origins = [origin.strip() for origin in settings.cors_origins.split(",")] if settings.cors_origins else []
    origins = Origins(cors_origins, None if need_key else settings.hosts)
    _add_hooks(
        service,
        rate,
        origins,
        WorkerLifecycle(Path(run.shared_file), admission, lambda: disconnect(runner), settings.max_connections),
        partial(_check_deployment, source, plan),
    )
    service.mount_asgi_app(PageFiles(), path=ROUTE)
    on, active = set(settings.integrations), ActiveCallers()
    adapters = Adapters(chosen(on), Service(lambda: app.segmenter, settings, active), chosen(set(INTEGRATIONS) - on))
    service.mount_asgi_app(adapters, path="/")
    work_paths = WORK_PATHS.union(adapters.work)
    # Outermost first: CORS preflight requests carry no API key.
    if cors_origins:
        service.add_asgi_middleware(
            CORSMiddleware,
            allow_origins=cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", REQUEST_ID_HEADER.decode()],
            expose_headers=["Retry-After", REQUEST_ID_HEADER.decode()],
        )
    disable_tracing()
    trace_requests(service, work_paths)
    service.add_asgi_middleware(
        Edge,
        work_paths=work_paths,
        file_paths=static_files() | page_files(),
        pages={
            **documents,
            **page_pages(),
            "/info": Info(service_info, models.versions, read_triton_metrics, lambda: read_health().version),
        },
        limits=Limits(settings.max_body_bytes, settings.body_timeout, settings.inference_timeout + 5),
        keys=keys,
        rate=rate,
        admission=admission,
        health=read_health,
        counts=Counts(),
        check_room={"/mobile_sam": segmenter.check_room},
        triton_metrics=read_triton_metrics,
        metrics_need_key=metrics_need_key,
        admin=Admin(admin_keys, models, settings.model_control_mode) if admin_keys else None,
        adapters=adapters,
        origins=origins,
        active=active,
    )
    return app


def _access(settings: Settings) -> tuple[ApiKeys | None, RateLimit | None, ApiKeys | None]:
    """Read the API keys, the rate limit and the admin keys.

    Raises:
        SettingsError: metrics need a key, but there are none.
        KeysError: the keys are invalid.
        RateError: the rate limit is invalid.
    """
    keys = ApiKeys.of(settings.api_keys, settings.api_keys_file)
    admin_keys = ApiKeys.of(settings.admin_keys, settings.admin_keys_file, variable=ADMIN_KEYS)
    if keys and admin_keys and admin_keys.overlaps(keys):
        raise KeysError(f"{ADMIN_KEYS}: admin keys must not also be API keys; one key is in both lists")
    if settings.metrics == "key" and keys is None:
        raise SettingsError("MOBILE_SAM_METRICS=key needs API keys, but none are set")
    rate = RateLimit(settings.rate_limit, settings.redis_url) if settings.rate_limit else None
    return keys, rate, admin_keys


def _served_repository(source: Path | None, plan: Plan, settings: Settings) -> Path | str:
    """Set up Triton, and return the model repository that it reads.

    Where Triton cannot run, serving exits with the reason; `bentoml build`, which also imports the service, works.
    """
    try:
        installation.prepare(settings.cache_dir)
        return repository.deploy_once(source, plan, settings) if source else settings.model_repository
    except installation.TritonSetupError as error:
        refuse_to_serve(str(error))
        logger.error("Triton cannot run here: %s", error)
        return settings.model_repository


def _check_deployment(source: Path | None, plan: Plan) -> None:
    """Clean up after a killed service, and exit with a one-line error if Triton could not load its models."""
    clean_up()
    try:
        check_shared_memory()
        if source:
            repository.check_repository(source)
    except installation.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None
    logging.getLogger("bentoml.mobile_sam.plan").info("%s", plan)


def _ready_line(source: Path | None, plan: Plan) -> str:
    """Return what the service logs once it is ready."""
    pages = "page {url}/ui, API {url}/"
    if source is None:
        return pages
    weights = versions.weights_record(source, versions.newest(source)) or {}
    return f"{pages}, weights {weights.get('name')}, encoder {plan.encoder.engine}"


def _add_hooks(
    service: Any, rate: RateLimit | None, origins: Origins, lifecycle: WorkerLifecycle, check_deployment: Any
) -> None:
    """Register what runs before the service is deployed, and at the start and the end of each API worker."""
    service.on_deployment(check_hooks)
    service.on_deployment(check_deployment)

    @service.on_startup  # type: ignore[untyped-decorator]
    def start_worker(_: Any) -> None:
        allocate_counters()
        forget_dead_workers()
        threading.Thread(target=origins.look_up_own_name, daemon=True).start()
        lifecycle.start()

    @service.on_shutdown  # type: ignore[untyped-decorator]
    async def stop_worker(_: Any) -> None:
        REFUSAL_LOG.summarise_ended(all_windows=True)
        if rate is not None:
            await rate.close()
