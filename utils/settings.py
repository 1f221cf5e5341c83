"""What can be set from the environment, read once at import of `service.py`.

Each variable is `MOBILE_SAM_` and the field's name in capitals: `MOBILE_SAM_MAX_BODY_BYTES=1000000`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from utils.plan import ENGINES

PREFIX = "MOBILE_SAM_"
CLIENT_TIMEOUT = 60
"""Seconds after which tritonclient, as BentoML sets it up, gives up a call."""
REMOTE_REPOSITORIES = ("s3://", "gs://", "as://")
"""S3 and what speaks like it (`s3://http://host:port/bucket/folder`), Google's and Azure's storage."""
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


class SettingsError(ValueError):
    """A variable holds what cannot be used; the message names the variable, what was expected and what came."""


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/mobile-sam-triton`, or `~/.cache/mobile-sam-triton`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mobile-sam-triton"


@dataclass(frozen=True)
class Settings:
    """The service's settings; all sizes in bytes, all times in seconds."""

    model_repository: Path | str = Path("model_repository")
    """What Triton loads: a folder, a relative one from that of `service.py`, or where Triton itself reads it, as one of
    `REMOTE_REPOSITORIES`."""
    model_control_mode: str = "none"
    """When Triton loads models: `none`, all at start; `explicit`, also by requests of operators (`admin_keys`); `poll`,
    also by itself, looking for changes every 15 s."""
    admin_keys: str | None = None
    """`NAME:KEY,NAME:KEY`: operators, who may see, load and unload models under `/admin`; or"""
    admin_keys_file: Path | None = None
    """a file with a `NAME:KEY` a line. Without either there is no `/admin`."""
    cache_dir: Path = dataclasses.field(default_factory=default_cache_dir)
    """Holds the assembled Triton backends, the downloaded checkpoint and the embeddings of images."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Largest request body; base64 makes an image a third larger than its file."""
    body_timeout: float = 30.0
    """How long a request's body may take to arrive before the caller gets a 408."""
    inference_timeout: float = 55.0
    """How long one call of Triton may take, its wait included, before the caller gets a 504."""
    max_requests: int = 32
    """Requests that one API worker answers or lets wait at once; further callers get a 503 and come again."""
    max_connections: int = 1000
    """Connections that one API worker has open, at most half of them from one address; fewer where file descriptors are
    short."""
    api_keys: str | None = None
    """`NAME:KEY,NAME:KEY`: callers must present one of the keys; or"""
    api_keys_file: Path | None = None
    """a file with a `NAME:KEY` a line, which may change while the service runs."""
    rate_limit: str | None = None
    """How often a key, or without keys an address, may ask: `60/minute`, `10/second; 1000/hour`."""
    log_format: str = "text"
    """How log lines are written: `text`, or `json`, a document a line. Triton's own lines stay as they are."""
    metrics: str = "open"
    """Who sees `/metrics`: `open`, everybody; `key`, holders of an API key."""
    cors_origins: str | None = None
    """Pages of other origins that may call from a browser: `https://a.example,https://b.example`, or `*`."""
    max_image_pixels: int | None = None
    """Largest image, width times height. This and the next three are read by the orchestrator in Triton, whose
    config.pbtxt has the defaults; they are here so that a wrong one is refused before anything starts."""
    max_answer_bytes: int = 160 * 1024 * 1024
    """Largest answer: 25 megapixels as `json` with a `cutout` have 150 MB. Also read by the orchestrator."""
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

    def repository_in(self, folder: Path) -> Path | None:
        """The model repository as a folder; none where Triton reads it from elsewhere.

        Args:
            folder: that relative paths are taken from.
        """
        return None if isinstance(self.model_repository, str) else folder / self.model_repository

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
            if text == "" and spec.name in NEVER_EMPTY:
                raise SettingsError(f"{name}: expected API keys, got nothing; without any, do not set it at all")
            if text:
                values[spec.name] = PARSERS.get(spec.name, _whole_number)(name, text)
        return cls(**values)  # type: ignore[arg-type]


def _path(_: str, text: str) -> Path:
    return Path(text).expanduser()


def _repository(name: str, text: str) -> Path | str:
    if text.startswith(REMOTE_REPOSITORIES):
        return text
    if "://" in text:
        raise SettingsError(f"{name}: expected a folder, or a URL with {', '.join(REMOTE_REPOSITORIES)}, got {text!r}")
    return _path(name, text)


def _engine(name: str, text: str) -> str:
    if text not in ("auto", *ENGINES):
        raise SettingsError(f"{name}: expected one of auto, {', '.join(ENGINES)}, got {text!r}")
    return text


def _redis_url(name: str, text: str) -> str:
    if not text.startswith(REDIS_SCHEMES):
        # What came is not shown: it may hold a password.
        raise SettingsError(f"{name}: expected a URL with {', '.join(REDIS_SCHEMES)}")
    return text


def _as_it_is(_: str, text: str) -> str:
    return text


def _one_of(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        if text not in words:
            raise SettingsError(f"{name}: expected {', '.join(words[:-1])} or {words[-1]}, got {text!r}")
        return text

    return parse


def _origins(name: str, text: str) -> str:
    for origin in text.split(","):
        parts = urlsplit(origin.strip())
        if origin.strip() != "*" and (not parts.scheme or not parts.netloc or parts.path or parts.query):
            raise SettingsError(f"{name}: expected origins such as https://a.example, or *, got {origin.strip()!r}")
    return text


def _seconds(name: str, text: str) -> float:
    return _number(name, text, float, "a positive number", 0)


def _inference_seconds(name: str, text: str) -> float:
    seconds = _seconds(name, text)
    if seconds >= CLIENT_TIMEOUT:
        raise SettingsError(f"{name}: expected less than the {CLIENT_TIMEOUT} s of Triton's client, got {text!r}")
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


NEVER_EMPTY = ("api_keys", "api_keys_file", "admin_keys", "admin_keys_file")
"""A variable that is empty by mistake must not open the service to everybody."""
PARSERS: dict[str, Callable[[str, str], object]] = {
    "model_repository": _repository,
    "cache_dir": _path,
    "body_timeout": _seconds,
    "inference_timeout": _inference_seconds,
    "api_keys": _as_it_is,
    "api_keys_file": _path,
    "rate_limit": _as_it_is,
    "log_format": _one_of("text", "json"),
    "metrics": _one_of("open", "key"),
    "model_control_mode": _one_of("none", "explicit", "poll"),
    "admin_keys": _as_it_is,
    "admin_keys_file": _path,
    "cors_origins": _origins,
    "embedding_cache_bytes": _whole_number_or_0,
    "redis_url": _redis_url,
    "engine": _engine,
}
"""How the text of each field is read; the others are whole numbers."""
