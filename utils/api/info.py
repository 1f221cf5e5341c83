"""The document of `GET /info`: version, weights, engine and limits of the service."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from orchestrator import tensors
from utils.api.requests import MAX_OBJECTS
from utils.api.responses import Descriptor, Engine, Info, Loaded, RequestLimits, Weights
from utils.errors import InferenceUnavailable
from utils.observability.reading import MAX_AGE_S, Reading
from utils.settings import Settings
from utils.triton.health import Health
from utils.triton.repository import orchestrator_settings

VERSION = "0.1.0"
METRICS_ATTEMPTS = 5
LOADED_METRIC = "mobile_sam_loaded_timestamp_seconds"
"""Triton metric with which the orchestrator reports the loaded weights
(`orchestrator.triton_io`)."""


def describe(repository: Path | None, settings: Settings, *, key_needed: bool) -> Info:
    """Return the document without a loaded model.

    `repository` is None if it is on another machine.
    """
    models = orchestrator_settings(repository)
    return Info(
        version=VERSION,
        weights=None,
        engine=None,
        triton=None,
        key_needed=key_needed,
        local_decoding=settings.local_decoding and repository is not None,
        limits=RequestLimits(
            max_body_bytes=settings.max_body_bytes,
            max_image_pixels=settings.max_image_pixels or models.max_image_pixels,
            max_objects=MAX_OBJECTS,
            timeout_s=settings.timeout_s(0),
        ),
        model_versions=[],
        loaded=[],
        encode_s=None,
    )


@dataclass(eq=False)
class InfoEndpoint:
    """The current document, and the ASGI application that serves it.

    It asks Triton twice, for milliseconds of processor time. Callers share what was read in the
    last second.
    """

    unloaded: Info
    """The result of `describe`."""
    versions: Callable[[], Awaitable[list[int]]]
    """Returns the versions that serve requests, ascending."""
    metrics: Callable[[], Awaitable[bytes]]
    """Returns Triton's metrics in the Prometheus text format, empty while Triton is down."""
    health: Callable[[], Health]
    timeout_s: Callable[[], float]
    """Returns the maximum time for one call of Triton."""

    def __post_init__(self) -> None:
        """Prepare the readings that callers share."""
        self._shared = Reading(self._read)

    async def recent(self, max_age_s: float = MAX_AGE_S) -> Info:
        """Return the document, at most so many seconds old."""
        document, _ = await self._shared(max_age_s=max_age_s)
        return document

    async def document(self) -> Info:
        """Return the document; weights and engine are None while no version is loaded."""
        try:
            versions = await self.versions()
        except InferenceUnavailable:
            versions = []
        by_version = await self._loaded(versions)
        loaded = [by_version[version] for version in versions if version in by_version]
        newest = by_version.get(versions[-1]) if versions else None
        health = self.health()
        return self.unloaded.model_copy(
            update={
                "weights": newest and newest.weights,
                "engine": newest and newest.engine,
                "triton": health.version or None,
                "model_versions": versions,
                "loaded": loaded,
                "encode_s": round(health.encode_s, 2) or None,
                "limits": self.unloaded.limits.model_copy(
                    update={"timeout_s": round(self.timeout_s(), 1)}
                ),
            }
        )

    async def _loaded(self, versions: list[int]) -> dict[int, Loaded]:
        """Return what is known of these versions, which serve requests.

        Such a version has already reported its weights, but on a busy machine Triton's metrics may
        not come in time. Then they are read again.
        """
        for _ in range(METRICS_ATTEMPTS):
            by_version = loaded_by_version(await self.metrics())
            if by_version.keys() >= set(versions):
                break
        return by_version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the document."""
        _, encoded = await self._shared()
        await Response(encoded, media_type="application/json")(scope, receive, send)

    async def _read(self) -> tuple[Info, bytes]:
        """Return the document, and the same in JSON."""
        document = await self.document()
        return document, document.model_dump_json().encode()


def loaded_by_version(metrics: bytes) -> dict[int, Loaded]:
    """Return each version of the model in Triton's metrics, in the Prometheus text format."""
    # prometheus_client must not be imported before BentoML has set up the workers' multiprocess
    # directory.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    lines = [line for line in metrics.decode().split("\n") if line.startswith(LOADED_METRIC)]
    samples = []
    for family in text_string_to_metric_families("\n".join(lines)):
        samples += family.samples
    samples.sort(key=lambda sample: sample.value)  # the last loaded one serves requests
    series = [sample.labels for sample in samples if sample.labels["model"] == tensors.SEGMENT]
    return {
        int(labels["version"]): Loaded(
            version=int(labels["version"]),
            weights=Weights.model_validate(labels),
            engine=Engine.model_validate(labels),
            descriptor=Descriptor.model_validate_json(labels["descriptor"]),
        )
        for labels in series
    }
