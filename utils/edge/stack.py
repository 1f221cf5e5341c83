"""The edge around BentoML: what every request passes, in the order in which it passes it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.api.jobs import EmbedJobs
from utils.edge.admin import Admin
from utils.edge.admission import Admission
from utils.edge.keys import ApiKeys
from utils.edge.limits import Limits
from utils.edge.middleware.access import ApiKeyMiddleware, OriginMiddleware, RateLimitMiddleware
from utils.edge.middleware.answers import (
    AnswerCountsMiddleware,
    AnswerHeadersMiddleware,
    LastPieceMiddleware,
)
from utils.edge.middleware.body import (
    BodyHeadersMiddleware,
    CostlyRoomMiddleware,
    EarlyEndMiddleware,
    ReadBodyMiddleware,
)
from utils.edge.middleware.context import ImageIdMiddleware, RequestContextMiddleware
from utils.edge.middleware.load import AdmissionMiddleware, HealthMiddleware
from utils.edge.middleware.paths import HeadLimitMiddleware, KnownPathsMiddleware
from utils.edge.middleware.refusals import RefusalsMiddleware
from utils.edge.middleware.work import (
    ForeignErrorsMiddleware,
    SlotMiddleware,
    TimeLimitMiddleware,
)
from utils.edge.origins import Origins
from utils.edge.pages import LIVE, METRICS, READY, MetricsPage, ReadinessPage
from utils.edge.paths import READ, WRITE, PathRouter, Paths
from utils.edge.rate import RateLimit
from utils.inference.shares import RecentCallers, Turns
from utils.integrations.adapter import Adapters
from utils.observability.metrics import Counts
from utils.observability.routes import JOB
from utils.triton.health import Health

MAX_LARGE_BODIES = 2
"""Large bodies that a worker reads at once: they take much of the event loop's time."""


@dataclass(frozen=True)
class Site:
    """What the service answers, besides BentoML's application."""

    work_paths: frozenset[str]
    """Paths that run inference: BentoML's POST paths, the adapters', and some of `pages`."""
    file_paths: frozenset[str]
    """Static files, which metrics count as one path."""
    pages: Mapping[str, ASGIApp]
    """Handlers of further GET paths."""
    adapters: Adapters
    """BentoML's paths in the languages of annotation tools."""
    file_answers: frozenset[str] = frozenset()
    """Paths whose large answers are read from a file piece by piece."""
    check_room: Mapping[str, Callable[[bytes], None]] = field(default_factory=dict)
    """Functions by path that take a body; they raise `Overloaded` if it would be refused later."""
    admin: Admin | None = None
    jobs: EmbedJobs | None = None
    """Jobs in the background."""


@dataclass(frozen=True)
class Access:
    """Who may call."""

    origins: Origins = field(default_factory=Origins)
    """Web pages and hosts that may send work or change anything."""
    keys: ApiKeys | None = None
    """API keys; each request that runs inference needs one."""
    rate: RateLimit | None = None
    """Limits of each key, or without keys of each address."""
    metrics_need_key: bool = False


def edge(
    app: ASGIApp,
    *,
    site: Site,
    access: Access,
    limits: Limits,
    admission: Admission,
    active: RecentCallers,
    health: Callable[[], Health],
    counts: Counts,
    triton_metrics: Callable[[], Awaitable[bytes]],
) -> ASGIApp:
    """Return BentoML's application behind the steps of the edge.

    BentoML's own limits on time and concurrency, which are outside of this, are off.

    Args:
        app: BentoML's application.
        site: further paths and what answers them.
        access: who may call.
        limits: limits of one request.
        admission: requests in progress in this worker.
        active: addresses that send work, noted here; other parts of the service may share it.
        health: returns the health of Triton.
        counts: metrics of answers.
        triton_metrics: returns Triton's metrics.
    """
    metrics = MetricsPage(app, health, _metrics_sources(site, triton_metrics))
    pages = _pages(site, metrics, ReadinessPage(admission, health))
    paths = _paths(site, pages, access)
    application = PathRouter(_handlers(site, pages), app)

    # Every request passes these first, from top to bottom; its answer passes them from bottom to
    # top. From the refusals on, an error that a step raises becomes the answer.
    first_steps = [
        Middleware(
            RequestContextMiddleware,
            paths,
            Turns(MAX_LARGE_BODIES, active=active, name="large bodies"),
        ),
        Middleware(AnswerHeadersMiddleware, paths, admission),
        Middleware(AnswerCountsMiddleware, counts, paths),
        Middleware(LastPieceMiddleware),
        Middleware(RefusalsMiddleware, site.adapters, active, limits),
        Middleware(HeadLimitMiddleware),
        Middleware(KnownPathsMiddleware, paths),
        Middleware(OriginMiddleware, access.origins, paths),
        Middleware(ApiKeyMiddleware, access.keys, paths),
    ]

    # Then only requests that run inference pass these, from top to bottom.
    work_steps = [
        Middleware(RateLimitMiddleware, access.rate),
        Middleware(ImageIdMiddleware),
        Middleware(AdmissionMiddleware, admission, active),
        Middleware(HealthMiddleware, health),
        Middleware(BodyHeadersMiddleware),
        Middleware(EarlyEndMiddleware, admission),
        Middleware(ReadBodyMiddleware, admission, limits),
        Middleware(CostlyRoomMiddleware, site.check_room),
        Middleware(SlotMiddleware, admission, counts, site.adapters, site.file_answers),
        Middleware(ForeignErrorsMiddleware, site.adapters),
        Middleware(TimeLimitMiddleware, limits),
    ]

    work = wrap(application, work_steps)
    router = PathRouter(dict.fromkeys(paths.work, work), application)
    http = wrap(router, first_steps)

    async def by_type(scope: Scope, receive: Receive, send: Send) -> None:
        steps = http if scope["type"] == "http" else app
        await steps(scope, receive, send)

    return by_type


def wrap(app: ASGIApp, steps: Sequence[Middleware]) -> ASGIApp:
    """Return an application behind steps, the outermost first."""
    for step, arguments, options in reversed(steps):
        app = step(app, *arguments, **options)
    return app


def _metrics_sources(
    site: Site, triton_metrics: Callable[[], Awaitable[bytes]]
) -> list[Callable[[], Awaitable[bytes]]]:
    if site.jobs is None:
        return [triton_metrics]
    return [triton_metrics, site.jobs.encoder.metrics]


def _pages(site: Site, metrics: ASGIApp, readiness: ASGIApp) -> dict[str, ASGIApp]:
    """Return the handlers of all GET paths that BentoML does not answer."""
    return {
        **site.pages,
        **dict.fromkeys(LIVE, PlainTextResponse("alive\n")),
        **dict.fromkeys(READY, readiness),
        METRICS: metrics,
    }


def _handlers(site: Site, pages: Mapping[str, ASGIApp]) -> dict[str, ASGIApp]:
    """Return the handlers of all paths that BentoML does not answer."""
    handlers = dict(pages)
    if site.jobs:
        # A proxy routes by the image's id here as well.
        handlers[JOB] = ImageIdMiddleware(site.jobs)
    if site.admin:
        handlers |= dict.fromkeys(site.admin.methods, site.admin)
    return handlers


def _paths(site: Site, pages: Mapping[str, ASGIApp], access: Access) -> Paths:
    """Return the table of all paths."""
    methods: dict[str, tuple[str, ...]] = {
        **dict.fromkeys(site.work_paths, WRITE),
        **dict.fromkeys([*pages, *site.file_paths, *site.adapters.pages], READ),
    }
    if site.jobs:
        methods[JOB] = (*READ, "DELETE")
    if site.admin:
        methods |= site.admin.methods
    need_key = {JOB} | site.adapters.key_pages | site.work_paths
    if access.metrics_need_key:
        need_key.add(METRICS)
    return Paths(methods, site.work_paths, site.file_paths, need_key, site.adapters.off)
