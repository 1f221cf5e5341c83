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

from utils import tensors, versions
from utils.errors import InferenceUnavailable
from utils.plan import Plan
from utils.schemas import MAX_OBJECTS
from utils.settings import Settings

OWN_REPOSITORY = Path(__file__).resolve().parents[1] / "model_repository"
VERSION = "0.1.0"
TOLD_OF_WEIGHTS = ("name", "sha256", "trained", "note")


def describe(repository: Path | None, plan: Plan, settings: Settings, *, key_needed: bool) -> dict[str, Any]:
    """The document.

    Args:
        repository: the model repository; none where it is not on this machine.
        plan: what runs where.
        settings: the service's.
        key_needed: whether requests that cost work need an API key.
    """
    return {
        "version": VERSION,
        "weights": weights_of(repository),
        "engine": {"encoder": plan.encoder.engine, "decoder": plan.decoder.engine} if repository else None,
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
        self, told: dict[str, Any], repository: Path | None, loaded: Callable[[], Awaitable[list[int]]]
    ) -> None:
        """Make it.

        Args:
            told: as `describe` gives it.
            repository: the model repository; none where it is not on this machine.
            loaded: the versions that answer requests, in rising order.
        """
        self._told, self._repository, self._loaded = told, repository, loaded
        self._weights: dict[int, dict[str, Any]] = {}

    async def document(self) -> dict[str, Any]:
        """All of it; of a Triton that is away, without versions and with the weights that will come."""
        try:
            loaded = await self._loaded()
        except InferenceUnavailable:
            loaded = []
        for version in loaded:  # whose folder may go before it is unloaded
            if weights := weights_of(self._repository, version):
                self._weights[version] = weights
        newest = self._weights.get(loaded[-1]) if loaded else weights_of(self._repository)
        return {**self._told, "weights": newest, "model_versions": loaded}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = Response(orjson.dumps(await self.document()), media_type="application/json")
        await answer(scope, receive, send)


def weights_of(repository: Path | None, version: int | None = None) -> dict[str, Any] | None:
    """What answers say of the weights in a model repository; nothing where it does not say, or is not at hand.

    Args:
        repository: the model repository.
        version: of the models; the newest unless told.
    """
    if repository is None:
        return None
    record = versions.record(repository, version or versions.newest(repository)) or {}
    # Where something is missing, `utils.triton.check_repository` says so.
    return {name: record[name] for name in TOLD_OF_WEIGHTS} if record.keys() >= set(TOLD_OF_WEIGHTS) else None


def _default_max_image_pixels(repository: Path) -> int:
    """The orchestrator's own limit, which holds where nothing is set."""
    file = repository / tensors.SEGMENT / "config.pbtxt"
    if not file.is_file():  # `utils.triton.check_repository` says what is missing
        file = OWN_REPOSITORY / tensors.SEGMENT / "config.pbtxt"
    text = file.read_text(encoding="utf-8")
    config = text_format.Parse(text, ModelConfig())
    return int(config.parameters["max_image_pixels"].string_value)
