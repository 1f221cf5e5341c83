"""Composition of the service: makes its parts from the settings and connects them with BentoML."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from orchestrator.cache import MOBILE_SAM_SHAPES, Layout
from utils import processes
from utils.api.answers import ORIENTATION_HEADER, REFUSAL_LOG
from utils.api.costly import check_room
from utils.api.decoding import LocalDecoding
from utils.api.info import InfoEndpoint, describe
from utils.api.jobs import EmbedJobs
from utils.api.openapi import pages
from utils.api.responses import Info
from utils.background.encoder import BackgroundEncoder, WaitingCallers
from utils.background.queue import EncodeQueue
from utils.bento import (
    check_hooks,
    connect,
    disconnect,
    refuse_to_serve,
    service_with_document,
    static_files,
    triton_address,
)
from utils.edge.admin import Admin
from utils.edge.admission import Admission
from utils.edge.keys import ADMIN_KEYS, ApiKeys
from utils.edge.lifecycle import WorkerLifecycle
from utils.edge.limits import Limits
from utils.edge.middleware.context import REQUEST_ID_HEADER
from utils.edge.origins import Origins
from utils.edge.rate import RateLimit
from utils.edge.stack import Access, Site, edge
from utils.inference.known_images import KNOWN_IMAGES, KnownImages
from utils.inference.segmenter import Segmenter
from utils.inference.shares import RecentCallers
from utils.inference.triton_segmenter import TritonSegmenter
from utils.integrations import ADAPTERS
from utils.integrations.adapter import Adapter, Adapters
from utils.integrations.service import MaskService
from utils.observability.logs import ERROR_LOG, configure_logging, logger
from utils.observability.metrics import Counts, prepare_files
from utils.observability.traces import trace_requests
from utils.page import page_files, page_pages
from utils.settings import PREFIX, Settings, SettingsError
from utils.triton import health, installation, repository, services, versions
from utils.triton.health import Health
from utils.triton.metrics import triton_metrics
from utils.triton.models import Models
from utils.triton.plan import Plan, PlanError
from utils.triton.run import RunState, check_shared_memory, clean_up, remove_abandoned
from utils.triton.runner import CONTROL_APIS, make_runner, server_flags

RATES_FILE = "rates"
"""Name of the counts of callers' requests in the run folder."""
WORK_PATHS = frozenset({"/mobile_sam", "/embed", "/everything"})
"""Paths that run inference."""
MAX_BODIES = 8
"""Largest bodies in a worker's memory together, those that are still arriving among them."""
ANSWER_MARGIN_S = 5.0
"""Time for an answer to start beyond the maximum time for Triton, whose own error comes first."""
NO_KEYS = (
    "every machine that reaches {address} can use this service, as it has no API keys: "
    "set MOBILE_SAM_API_KEYS_FILE, or listen (--host) or publish the container's port on 127.0.0.1"
)
CLIENT_KEY = (
    "MOBILE_SAM_API_KEY is a key for clients and does not protect this service: "
    "MOBILE_SAM_API_KEYS or MOBILE_SAM_API_KEYS_FILE name the keys that it accepts"
)


@dataclass
class App:
    """Parts of the service that its API functions use."""

    service: Any
    """A `bentoml.legacy.Service`."""
    segmenter: Segmenter
    background: BackgroundEncoder
    settings: Settings
    timeout_s: Callable[[], float]
    """Returns the maximum time for one call of Triton, by the time that the encoder takes."""
    time_left_s: Callable[[], float]
    """Returns the time for which a service that stops waits for a request, infinite until then."""


@dataclass(frozen=True)
class _Configuration:
    """Settings, and what the service serves by them."""

    settings: Settings
    source: Path | None
    """Folder of the model repository; None if it is on another machine."""
    served: Path | str
    """What Triton reads: a folder with a snapshot of the repository, or the repository's URL."""
    plan: Plan
    keys: ApiKeys | None
    rate: RateLimit | None
    admin_keys: ApiKeys | None

    @property
    def folder(self) -> Path | None:
        """The folder that Triton reads; None if the repository is on another machine."""
        return Path(self.served) if self.source else None

    @property
    def embeddings(self) -> Path:
        """The folder of the embedding cache."""
        folder = os.environ.get(f"{PREFIX}EMBEDDING_CACHE_DIR")
        return Path(folder).expanduser() if folder else self.settings.cache_dir / "embeddings"

    @property
    def tools(self) -> list[Adapter]:
        """The annotation tools whose paths are on."""
        return [adapter for adapter in ADAPTERS if adapter.name in self.settings.integrations]


@dataclass(frozen=True)
class _Triton:
    """Triton as the other parts of the service see it."""

    runner: Any
    """BentoML's runner, which starts it."""
    run: RunState
    models: Models
    health: Callable[[], Health]
    """Returns its health as the watchdog last recorded it."""
    metrics: Callable[[], Awaitable[bytes]]
    """Returns its metrics in the Prometheus text format, empty while it is down."""
    timeout_s: Callable[[], float]
    """Returns the maximum time for one call, by the time that the encoder takes."""


@dataclass(frozen=True)
class _Worker:
    """Requests and callers of one API worker."""

    admission: Admission
    active: RecentCallers
    """Addresses that send work."""
    waiting: WaitingCallers
    """Callers of all workers who wait for Triton."""
    counts: Counts
    origins: Origins
    lifecycle: WorkerLifecycle
    """What starts and stops the worker."""


def build() -> App:
    """Build the service from the environment variables, each part from those before it.

    Raises:
        SystemExit: a one-line error; a setting is invalid, or the service cannot run.
    """
    configure_logging()
    processes.raise_descriptor_limit()
    configuration = _prepare()
    info = _service_info(configuration)
    _publish_to_orchestrator(configuration, info)
    documents = _documents(configuration, info)

    triton = _triton(configuration)
    worker = _worker(configuration, triton)
    segmenter = _segmenter(configuration, triton, worker)
    background = _background(configuration, triton, worker, segmenter)
    adapters = _adapters(configuration, triton, worker, segmenter, background)
    local = _local_decoding(configuration, info, triton, segmenter)
    site = Site(
        work_paths=WORK_PATHS.union(adapters.work, local.pages),
        file_paths=static_files() | page_files(),
        pages={**documents, **page_pages(), **local.pages, "/info": local.info},
        adapters=adapters,
        file_answers=local.from_file,
        check_room={"/mobile_sam": partial(check_room, segmenter)},
        admin=_admin(configuration, triton),
        jobs=EmbedJobs(background),
    )

    document = bytes(documents["/docs.json"].body)
    service = service_with_document("mobile_sam", triton.runner, document)
    _add_hooks(service, configuration, worker, background, site)
    service.mount_asgi_app(adapters, path="/")
    _add_middleware(service, configuration, triton, worker, site)
    return App(
        service,
        segmenter,
        background,
        configuration.settings,
        triton.timeout_s,
        worker.admission.time_left_s,
    )


def _prepare() -> _Configuration:
    """Read the environment variables, set up Triton, and plan what runs on this machine.

    Raises:
        SystemExit: a one-line error; a setting is invalid, or the service cannot run.
    """
    try:
        settings = Settings.from_environment()
        source = settings.repository_in(installation.ROOT)
        keys, rate, admin_keys = _access(settings)
        replace(RunState.current(), timeout_s=settings.timeout_s(0)).publish()  # for the watchdog
        served = _served_repository(source, settings)
        # By the snapshot, as the repository may have other weights when BentoML starts another
        # worker.
        plan = repository.plan_for_this_machine(Path(served) if source else None, settings)
    except (SettingsError, PlanError) as error:
        raise SystemExit(f"error: {error}") from None
    return _Configuration(settings, source, served, plan, keys, rate, admin_keys)


def _service_info(configuration: _Configuration) -> Info:
    """Return `/info` without a loaded model."""
    needs_key = configuration.keys is not None
    return describe(configuration.folder, configuration.settings, key_needed=needs_key)


def _publish_to_orchestrator(configuration: _Configuration, info: Info) -> None:
    """Set the environment variables that the orchestrator reads, as this service understood them.

    Its own default of the folder ignores `cache_dir`, and pydantic takes 25_000_000 for a number.
    """
    settings = configuration.settings
    values: dict[str, object] = {"EMBEDDING_CACHE_DIR": configuration.embeddings}
    for name in ("max_image_pixels", "max_answer_bytes", "embedding_cache_bytes"):
        if name in settings.model_fields_set:
            values[name.upper()] = getattr(settings, name)
    if configuration.source is None:
        # The limit in a remote repository is unknown here; make the one in /info apply.
        values["MAX_IMAGE_PIXELS"] = info.limits.max_image_pixels
    os.environ.update({PREFIX + name: str(value) for name, value in values.items()})


def _documents(configuration: _Configuration, info: Info) -> dict[str, Response]:
    """Return the pages that describe the API."""
    return pages(
        info,
        metrics_need_key=configuration.settings.metrics == "key",
        admin=configuration.admin_keys is not None,
        tools=configuration.tools,
    )


def _runner(configuration: _Configuration) -> Any:
    """Return BentoML's runner, which starts Triton."""
    settings, source, served = configuration.settings, configuration.source, configuration.served
    return make_runner(
        served,
        # Inference too: a web page can send simple requests to any port, and deep JSON crashes
        # old Tritons.
        server_flags(settings.model_control_mode, restricted=f"{CONTROL_APIS},inference"),
        ready_line=_ready_line(configuration.folder, configuration.plan, settings),
        announce=partial(_announce, source, served, settings),
        public_warning="" if configuration.keys else NO_KEYS,
    )


def _triton(configuration: _Configuration) -> _Triton:
    """Return Triton, which BentoML's runner starts later."""
    run = RunState.current()
    runner = _runner(configuration)
    read_health = partial(health.read_health, run.health_file)
    return _Triton(
        runner,
        run,
        _models(configuration, runner, run),
        read_health,
        partial(triton_metrics, run.metrics_port),
        partial(_timeout_s, configuration.settings, read_health),
    )


def _timeout_s(settings: Settings, read_health: Callable[[], Health]) -> float:
    """Return the maximum time for one call of Triton, by the time that the encoder takes."""
    return settings.timeout_s(read_health().encode_s)


def _models(configuration: _Configuration, runner: Any, run: RunState) -> Models:
    """Return the client of Triton's list of models."""
    settings, source = configuration.settings, configuration.source
    address = partial(triton_address, runner.name)
    folder = configuration.folder
    if source is None or folder is None or settings.model_control_mode == "poll":
        return Models(address, run, None)  # Triton reads the repository itself
    deployment = versions.Deployment(source, folder)
    return Models(
        address,
        run,
        deployment,
        partial(repository.is_configured, source, settings, folder),
    )


def _worker(configuration: _Configuration, triton: _Triton) -> _Worker:
    """Return what this worker knows of its requests and callers."""
    settings, keys = configuration.settings, configuration.keys
    body_bytes = MAX_BODIES * settings.max_body_bytes
    admission = Admission(settings.max_requests, body_bytes, settings.max_answer_bytes)
    lifecycle = WorkerLifecycle(
        triton.run.health_file,
        admission,
        partial(disconnect, triton.runner),
        settings.max_connections,
        triton.run.first_process,
    )
    return _Worker(
        admission,
        RecentCallers(),
        WaitingCallers(Path(triton.run.folder) / "callers"),
        Counts(keys.names if keys and settings.metrics_by_key else None),
        Origins(settings.cors_origins, None if keys else settings.hosts),
        lifecycle,
    )


def _segmenter(configuration: _Configuration, triton: _Triton, worker: _Worker) -> TritonSegmenter:
    """Return the segmenter that calls Triton."""
    return TritonSegmenter(
        _inference(triton.runner, triton.run),
        triton.timeout_s,
        configuration.plan.instances,
        partial(health.report_fault, triton.run.health_file),
        worker.waiting.one_more,
        batch_points=configuration.plan.grid_batch,
        max_new_images=configuration.settings.max_requests,
        known_images=KnownImages(configuration.embeddings / KNOWN_IMAGES),
    )


def _inference(runner: Any, run: RunState) -> Callable[..., Any]:
    """Return a function that calls Triton, with the service's key."""
    connect_once = cache(partial(connect, runner))

    def infer(*, headers: dict[str, str], **call: Any) -> Any:
        connect_once()  # the runner has a client, and `infer`, only once a worker has started
        return runner.infer(headers={**headers, **run.key_header}, **call)

    return infer


def _background(
    configuration: _Configuration, triton: _Triton, worker: _Worker, segmenter: Segmenter
) -> BackgroundEncoder:
    """Return the encoder of images before their first prompt."""
    rate = configuration.rate

    def is_ready() -> bool:
        return triton.health().ready and not worker.admission.stopping

    return BackgroundEncoder(
        _queue(configuration),
        Path(triton.run.folder),
        segmenter,
        is_ready,
        rate.check if rate else None,
        versions=triton.models.versions,
        callers=worker.waiting,
    )


def _adapters(
    configuration: _Configuration,
    triton: _Triton,
    worker: _Worker,
    segmenter: Segmenter,
    background: BackgroundEncoder,
) -> Adapters:
    """Return the paths in the languages of annotation tools."""
    masks = MaskService(
        segmenter,
        configuration.settings,
        triton.timeout_s,
        worker.active,
        background,
        worker.admission.time_left_s,
    )
    tools = configuration.tools
    off = [adapter for adapter in ADAPTERS if adapter not in tools]
    return Adapters(tools, masks, off)


def _local_decoding(
    configuration: _Configuration,
    info: Info,
    triton: _Triton,
    segmenter: Segmenter,
) -> LocalDecoding:
    """Return the paths for callers who decode by themselves, and `/info`."""
    endpoint = InfoEndpoint(
        info,
        triton.models.versions,
        triton.metrics,
        triton.health,
        triton.timeout_s,
    )
    folder = configuration.folder if info.local_decoding else None
    return LocalDecoding(segmenter, folder, endpoint)


def _admin(configuration: _Configuration, triton: _Triton) -> Admin | None:
    """Return the paths that change models, if there are keys for them."""
    if configuration.admin_keys is None:
        return None
    control_mode = configuration.settings.model_control_mode
    return Admin(configuration.admin_keys, triton.models, control_mode)


def _add_hooks(
    service: Any,
    configuration: _Configuration,
    worker: _Worker,
    background: BackgroundEncoder,
    site: Site,
) -> None:
    """Have BentoML check the deployment before it serves, and prepare and end its workers."""
    settings = configuration.settings
    check_deployment = partial(
        _check_deployment,
        configuration.source,
        configuration.served,
        configuration.plan,
        settings,
    )
    start_worker = partial(_start_worker, settings, worker, background, site.work_paths)
    service.on_deployment(check_hooks)
    service.on_deployment(check_deployment)
    service.on_startup(start_worker)
    service.on_shutdown(partial(_stop_worker, configuration.rate))


def _add_middleware(
    service: Any,
    configuration: _Configuration,
    triton: _Triton,
    worker: _Worker,
    site: Site,
) -> None:
    """Put around BentoML's application what each request passes, outermost first."""
    settings = configuration.settings
    _allow_origins(service, settings)  # CORS preflight requests carry no API key
    trace_requests(service, site.work_paths)

    def answer_timeout_s() -> float:
        return triton.timeout_s() + ANSWER_MARGIN_S

    service.add_asgi_middleware(
        edge,
        site=site,
        access=Access(
            worker.origins,
            configuration.keys,
            configuration.rate,
            metrics_need_key=settings.metrics == "key",
        ),
        limits=Limits(settings.max_body_bytes, settings.body_timeout, answer_timeout_s),
        admission=worker.admission,
        active=worker.active,
        health=triton.health,
        counts=worker.counts,
        triton_metrics=triton.metrics,
    )


def _access(settings: Settings) -> tuple[ApiKeys | None, RateLimit | None, ApiKeys | None]:
    """Read the API keys, the rate limit and the admin keys.

    Raises:
        SettingsError: keys or the rate limit are invalid, or metrics need a key, but there are
            none.
    """
    keys = ApiKeys.from_setting(settings.api_keys, settings.api_keys_file)
    admin_keys = ApiKeys.from_setting(
        settings.admin_keys,
        settings.admin_keys_file,
        variable=ADMIN_KEYS,
    )
    if keys and admin_keys and admin_keys.overlaps(keys):
        raise SettingsError(
            f"{ADMIN_KEYS}: admin keys must not also be API keys; one key is in both lists",
        )
    if settings.metrics == "key" and keys is None:
        raise SettingsError("MOBILE_SAM_METRICS=key needs API keys, but none are set")
    return keys, _rate_limit(settings, keys), admin_keys


def _rate_limit(settings: Settings, keys: ApiKeys | None) -> RateLimit | None:
    """Return the limits of all callers.

    With keys there may be some later: in a key file that changes.
    """
    if settings.rate_limit is None and keys is None:
        return None
    return RateLimit(
        settings.rate_limit,
        settings.redis_url,
        file=Path(RunState.current().folder) / RATES_FILE,
        rates_of=keys.rates_of if keys else lambda _: None,
    )


def _queue(configuration: _Configuration) -> EncodeQueue:
    """Return the queue of images for these weights. It may take half the space of embeddings."""
    settings, folder = configuration.settings, configuration.folder
    record = versions.weights_record(folder) if folder else {}
    # Services with different weights may use the same repository: each encodes its own images.
    repository_name = configuration.source or settings.model_repository
    weights = f"{repository_name} {record.get('fingerprint', '')}"
    identity = f"{weights} {configuration.plan.encoder.engine}"
    name = hashlib.sha256(identity.encode()).hexdigest()[:16]
    descriptor = record.get("descriptor", {})
    cache_bytes = settings.embedding_cache_bytes
    if cache_bytes is None:
        cache_bytes = repository.orchestrator_settings(folder).embedding_cache_bytes
    return EncodeQueue(
        configuration.embeddings / f"ahead-{name}.sqlite3",
        cache_bytes // 2,
        Layout("", descriptor.get("embedding", MOBILE_SAM_SHAPES)).nbytes,
    )


def _served_repository(source: Path | None, settings: Settings) -> Path | str:
    """Set up Triton, and return the model repository that it reads.

    Where Triton cannot run, serving exits with the reason; `bentoml build`, which also imports the
    service, works.
    """
    try:
        installation.prepare(settings.cache_dir)
        return repository.deploy_once(source, settings) if source else settings.model_repository
    except installation.TritonSetupError as error:
        refuse_to_serve(str(error))
        logger.error("Triton cannot run here: %s", error)
        return source or settings.model_repository


def _check_deployment(
    source: Path | None,
    served: Path | str,
    plan: Plan,
    settings: Settings,
) -> None:
    """Clean up after a killed service, and check that Triton can load its models.

    Raises:
        SystemExit: a one-line error.
    """
    clean_up()
    remove_abandoned(settings.cache_dir / repository.SERVICES)
    try:
        check_shared_memory()
        if source:
            repository.check_repository(source, Path(served))
            if settings.expected_weights:
                repository.check_weights(Path(served), settings.expected_weights)
    except installation.TritonSetupError as error:
        raise SystemExit(f"error: {error}") from None
    if "MOBILE_SAM_API_KEY" in os.environ and not (settings.api_keys or settings.api_keys_file):
        logger.warning("%s", CLIENT_KEY)
    logger.getChild("plan").info("%s", plan)
    if source:
        for line in services.users_of(source):
            logger.info("%s", line)


def _announce(source: Path | None, served: Path | str, settings: Settings, url: str) -> None:
    """Record what this service serves, for later starts and for commands that write weights."""
    if source:
        name = str(versions.weights_record(Path(served)).get("name", "unknown"))
        run = RunState.current()
        service = services.Service(
            run.first_process,
            url,
            str(source.resolve()),
            name,
            settings.model_control_mode,
        )
        with contextlib.suppress(OSError):  # shared memory is full: the watchdog reports it
            services.announce(Path(run.folder), service)


def _ready_line(served: Path | None, plan: Plan, settings: Settings) -> str:
    """Return what the service logs once it is ready."""
    pages = "page {url}/ui, API {url}/"
    if served is None:
        return pages
    engine = "" if settings.model_control_mode == "poll" else f", encoder {plan.encoder.engine}"
    return f"{pages}, weights {versions.weights_record(served).get('name')}{engine}"


def _allow_origins(service: Any, settings: Settings) -> None:
    """Let the web pages of the settings' origins call the service."""
    if settings.cors_origins:
        service.add_asgi_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "X-API-Key",
                "X-Image-Id",
                REQUEST_ID_HEADER.decode(),
            ],
            expose_headers=["Retry-After", REQUEST_ID_HEADER.decode(), ORIENTATION_HEADER],
        )


def _start_worker(
    settings: Settings,
    worker: _Worker,
    background: BackgroundEncoder,
    work_paths: Collection[str],
    _: Any,
) -> None:
    prepare_files(by_key=settings.metrics_by_key)
    worker.counts.start(work_paths)
    threading.Thread(target=worker.origins.look_up_own_name, daemon=True).start()
    worker.lifecycle.start(background.run())


async def _stop_worker(rate: RateLimit | None, _: Any) -> None:
    REFUSAL_LOG.summarise_ended(all_windows=True)
    ERROR_LOG.summarise_ended(all_windows=True)
    if rate is not None:
        await rate.aclose()
