"""What `GET /info` tells a client before it sends anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import orjson
from google.protobuf import text_format
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tritonclient.grpc.model_config_pb2 import ModelConfig

from utils import tensors
from utils.errors import InferenceUnavailable
from utils.schemas import MAX_OBJECTS
from utils.settings import Settings

OWN_REPOSITORY = Path(__file__).resolve().parents[1] / "model_repository"
VERSION = "0.1.0"
LOADED = "mobile_sam_loaded_timestamp_seconds"
"""Triton's metric in which the orchestrator reports what it has loaded (`mobile_sam_models.py`)."""


def describe(repository: Path | None, settings: Settings, *, key_needed: bool) -> dict[str, Any]:
    """Return the document as it is while no model is loaded.

    Args:
        repository: the folder that Triton reads models from; None where they are not on this machine.
        settings: the service's.
        key_needed: whether requests that cost work need an API key.
    """
    return {
        "version": VERSION,
        "weights": None,
        "engine": None,
        "key_needed": key_needed,
        "limits": {
            "max_body_bytes": settings.max_body_bytes,
            "max_image_pixels": settings.max_image_pixels or _default_max_image_pixels(repository or OWN_REPOSITORY),
            "max_objects": MAX_OBJECTS,
        },
    }


class Info:
    """The document as it is now: models come and go while the service runs."""

    def __init__(
        self,
        unloaded: dict[str, Any],
        versions: Callable[[], Awaitable[list[int]]],
        metrics: Callable[[], Awaitable[bytes]],
    ) -> None:
        """Keep what to ask; nothing is asked yet.

        Args:
            unloaded: as `describe` returns it.
            versions: gives the versions that answer requests, in rising order.
            metrics: gives Triton's metrics in Prometheus' text format; without series while Triton is away.
        """
        self._unloaded, self._versions, self._metrics = unloaded, versions, metrics

    async def document(self) -> dict[str, Any]:
        """Return all of it; without versions, weights and engine while no version answers."""
        try:
            versions = await self._versions()
        except InferenceUnavailable:
            versions = []
        # Asked after the versions: what is ready has reported itself by then.
        newest = loaded_by_version(await self._metrics()).get(versions[-1], {}) if versions else {}
        return {**self._unloaded, **newest, "model_versions": versions}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = Response(orjson.dumps(await self.document()), media_type="application/json")
        await answer(scope, receive, send)


def loaded_by_version(metrics: bytes) -> dict[int, dict[str, Any]]:
    """Return weights and engine of each version, as the processes that answer have loaded them.

    Args:
        metrics: Triton's, in Prometheus' text format.
    """
    # prometheus_client must not be imported before BentoML has set up the folder that its workers share.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    lines = [line for line in metrics.decode().split("\n") if line.startswith(LOADED)]
    samples = [sample for family in text_string_to_metric_families("\n".join(lines)) for sample in family.samples]
    loaded = {}
    for sample in sorted(samples, key=lambda sample: sample.value):  # the last one loaded is the one that answers
        labels = sample.labels
        if labels["model"] == tensors.SEGMENT:
            loaded[int(labels["version"])] = {
                "weights": {
                    "name": labels["name"],
                    "sha256": labels["sha256"],
                    "trained": labels["trained"] == "true",
                    "note": labels["note"],
                },
                "engine": {"encoder": labels["encoder"], "decoder": labels["decoder"]},
            }
    return loaded


def _default_max_image_pixels(repository: Path) -> int:
    """The orchestrator's own limit, which holds where nothing is set."""
    file = repository / tensors.SEGMENT / "config.pbtxt"
    if not file.is_file():  # `utils.triton.check_repository` says what is missing
        file = OWN_REPOSITORY / tensors.SEGMENT / "config.pbtxt"
    text = file.read_text(encoding="utf-8")
    config = text_format.Parse(text, ModelConfig())
    return int(config.parameters["max_image_pixels"].string_value)
