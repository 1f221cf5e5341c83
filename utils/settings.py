"""What can be set from the environment, read once at import of `service.py`.

Each variable is `MOBILE_SAM_` and the field's name in capitals: `MOBILE_SAM_MAX_BODY_BYTES=1000000`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from utils.plan import ENGINES

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

    engine: str = "auto"
    """What runs encoder and decoder: one of `utils.plan.ENGINES`, or `auto`."""
    threads: int | None = None
    """Threads that one run of the encoder has; default: the cores this process may use."""
    encoders: int | None = None
    """Instances of the encoder; default: by cores or GPU."""
    orchestrators: int | None = None
    """Processes for requests on new images, and as many for those on known ones; default: by cores."""

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
            if text:
                values[spec.name] = PARSERS.get(spec.name, _whole_number)(name, text)
        return cls(**values)  # type: ignore[arg-type]


def _path(_: str, text: str) -> Path:
    return Path(text).expanduser()


def _engine(name: str, text: str) -> str:
    if text not in ("auto", *ENGINES):
        raise SettingsError(f"{name}: expected one of auto, {', '.join(ENGINES)}, got {text!r}")
    return text


def _redis_url(name: str, text: str) -> str:
    if not text.startswith(REDIS_SCHEMES):
        # What came is not shown: it may hold a password.
        raise SettingsError(f"{name}: expected a URL with {', '.join(REDIS_SCHEMES)}")
    return text


def _timeout(name: str, text: str) -> float:
    seconds = _number(name, text, float, "a positive number", 0)
    if seconds >= BENTOML_TIMEOUT:
        raise SettingsError(f"{name}: expected less than BentoML's own {BENTOML_TIMEOUT} s, got {text!r}")
    return seconds


def _whole_number(name: str, text: str) -> float:
    return _number(name, text, int, "a positive whole number", 0)


def _whole_number_or_0(name: str, text: str) -> float:
    return _number(name, text, int, "a positive whole number or 0", -1)


def _number(name: str, text: str, kind: type[int] | type[float], expected: str, above: int) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = kind(-1)
    if not above < value < float("inf"):
        raise SettingsError(f"{name}: expected {expected}, got {text!r}")
    return value


PARSERS: dict[str, Callable[[str, str], object]] = {
    "model_repository": _path,
    "cache_dir": _path,
    "inference_timeout": _timeout,
    "embedding_cache_bytes": _whole_number_or_0,
    "redis_url": _redis_url,
    "engine": _engine,
}
"""How the text of each field is read; the others are whole numbers."""
