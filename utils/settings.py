"""What can be set from the environment, read once at import of `service.py`.

Each variable is `MOBILE_SAM_` and the field's name in capitals: `MOBILE_SAM_MAX_BODY_BYTES=1000000`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "MOBILE_SAM_"
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
BENTOML_TIMEOUT = 60
"""Seconds after which BentoML ends a request with an answer of its own."""


class SettingsError(ValueError):
    """A variable holds what cannot be used; the message names the variable, what was expected and what came."""


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/mobile-sam-triton`, or `~/.cache/mobile-sam-triton`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mobile-sam-triton"


@dataclass(frozen=True)
class Settings:
    """The service's settings; all sizes in bytes, all times in seconds."""

    model_repository: Path = Path("model_repository")
    """What Triton loads; a relative path is taken from the folder of `service.py`."""
    cache_dir: Path = dataclasses.field(default_factory=default_cache_dir)
    """Holds the assembled Triton backends, the downloaded checkpoint and the embeddings of images."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Largest request body; base64 makes an image a third larger than its file."""
    inference_timeout: float = 55.0
    """How long one call of Triton may take before the caller gets a 504; less than BentoML's 60."""
    max_image_pixels: int | None = None
    """Largest image, width times height. This and the next two are read by the orchestrator in Triton, whose
    config.pbtxt has the defaults; they are here so that a wrong one is refused before anything starts."""
    embedding_cache_bytes: int | None = None
    """What the embeddings of images may take on disk; 0: none are kept."""
    redis_url: str | None = None
    """Where replicas share embeddings: `redis://`, `rediss://` or `unix://`."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """The settings with every `MOBILE_SAM_*` variable applied.

        Raises:
            SettingsError: a value is not of its field's type or out of range.
        """
        values: dict[str, object] = {}
        for spec in dataclasses.fields(cls):
            name = PREFIX + spec.name.upper()
            text = environ.get(name)
            if not text:
                continue
            if spec.type == "Path":
                values[spec.name] = Path(text).expanduser()
                continue
            if spec.name == "redis_url":
                if not text.startswith(REDIS_SCHEMES):
                    # What came is not shown: it may hold a password.
                    raise SettingsError(f"{name}: expected a URL with {', '.join(REDIS_SCHEMES)}")
                values[spec.name] = text
                continue
            value = _number(name, text, float if spec.type == "float" else int, spec.name == "embedding_cache_bytes")
            if spec.name == "inference_timeout" and value >= BENTOML_TIMEOUT:
                raise SettingsError(f"{name}: expected less than BentoML's own {BENTOML_TIMEOUT} s, got {text!r}")
            values[spec.name] = value
        return cls(**values)  # type: ignore[arg-type]


def _number(name: str, text: str, kind: type[int] | type[float], or_zero: bool) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not 0 < value < float("inf") and not (or_zero and value == 0):
        expected = "a positive whole number" if kind is int else "a positive number"
        raise SettingsError(f"{name}: expected {expected}{' or 0' if or_zero else ''}, got {text!r}")
    return value
