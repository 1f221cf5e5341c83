"""What `GET /info` tells a client before it sends anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from utils import tensors
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


def weights_of(repository: Path | None) -> dict[str, Any] | None:
    """What answers say of the weights in a model repository; nothing where it does not say, or is not at hand."""
    if repository is None:
        return None
    try:
        record = orjson.loads((repository / tensors.SEGMENT / "1" / "weights.json").read_bytes())
        return {name: record[name] for name in TOLD_OF_WEIGHTS}
    except (OSError, ValueError, KeyError, TypeError):  # `utils.triton.check_repository` says what is missing
        return None


def _default_max_image_pixels(repository: Path) -> int:
    """The orchestrator's own limit, which holds where nothing is set."""
    file = repository / tensors.SEGMENT / "config.pbtxt"
    if not file.is_file():  # `utils.triton.check_repository` says what is missing
        file = OWN_REPOSITORY / tensors.SEGMENT / "config.pbtxt"
    text = file.read_text(encoding="utf-8")
    config = text_format.Parse(text, ModelConfig())
    return int(config.parameters["max_image_pixels"].string_value)
