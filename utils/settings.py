"""Settings from environment variables, read once when `service.py` is imported.

A variable is named `MOBILE_SAM_` and the field in capitals: `MOBILE_SAM_MAX_BODY_BYTES=1000000`.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_type_hints
from urllib.parse import urlsplit

from utils.triton.plan import ENGINES

PREFIX = "MOBILE_SAM_"
CLIENT_TIMEOUT_S = 60
"""Timeout of tritonclient as BentoML configures it."""
REMOTE_REPOSITORIES = ("s3://", "gs://", "as://")
"""URL schemes of S3 and compatible storages (`s3://http://host:port/bucket/folder`), Google and Azure."""
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
INTEGRATIONS = ("x-anylabeling", "roboflow", "cvat", "samapi", "label-studio")
"""Adapters in `utils.integrations`."""
DEFAULT_INTEGRATIONS = tuple(name for name in INTEGRATIONS if name != "label-studio")
"""Adapters that are on by default: all that do not fetch images from elsewhere."""
NEVER_EMPTY = ("api_keys", "api_keys_file", "admin_keys", "admin_keys_file")
"""Fields whose variable must not be empty: a mistake must not open the service to everybody."""


class SettingsError(ValueError):
    """Invalid value of an environment variable."""


def default_cache_dir() -> Path:
    """Return `$XDG_CACHE_HOME/mobile-sam-triton`, or `~/.cache/mobile-sam-triton`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mobile-sam-triton"


def _invalid(expected: str, got: str) -> SettingsError:
    return SettingsError(f"expected {expected}, got {got!r}")


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _repository(text: str) -> Path | str:
    if text.startswith(REMOTE_REPOSITORIES):
        return text
    if "://" in text:
        raise _invalid(f"a folder, or a URL with {', '.join(REMOTE_REPOSITORIES)}", text)
    return _path(text)


def _integrations(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if text != "none")
    for part in names:
        if part not in INTEGRATIONS:
            raise _invalid(f"none, or some of {', '.join(INTEGRATIONS)}", part)
    return names


def _image_origins(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip().rstrip("/") for part in text.split(","))
    for part in parts:
        if "://" in part:
            _http_url(part, path=False)
            continue
        try:
            ipaddress.ip_network(part)
        except ValueError:
            expected = "origins such as https://images.example, and networks such as 10.20.0.0/16"
            raise _invalid(expected, part) from None
    return parts


def _http_url(text: str, *, path: bool = True) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc and (parts.port or 1)
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment or (parts.path.strip("/") and not path):
        raise _invalid("an http or https URL" if path else "origins such as https://images.example", text)
    return text.rstrip("/")


def _redis_url(text: str) -> str:
    if not text.startswith(REDIS_SCHEMES):
        # The value is not shown, as it may contain a password.
        raise SettingsError(f"expected a URL with {', '.join(REDIS_SCHEMES)}")
    return text


def _word(expected: str, *words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise _invalid(expected, text)
        return text

    return parse


def _origins(text: str) -> str:
    for origin in map(str.strip, text.split(",")):
        parts = urlsplit(origin)
        if origin != "*" and (not parts.scheme or not parts.netloc or parts.path or parts.query):
            raise SettingsError(f"expected origins such as https://a.example, or *, got {origin!r}")
    return text


def _hosts(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9._*-]+", name):
            raise _invalid("host names without a port, such as segment.example or *.example.org", name)
    return names


def _number(kind: type[int] | type[float], expected: str, above: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(-1)
        if not above < value < float("inf"):
            raise _invalid(expected, text)
        return value

    return parse


_positive_whole = _number(int, "a positive whole number", 0)
_seconds = _number(float, "a positive number", 0)


def _inference_seconds(text: str) -> float:
    seconds = _seconds(text)
    if seconds >= CLIENT_TIMEOUT_S:
        raise _invalid(f"less than {CLIENT_TIMEOUT_S} (Triton's client timeout)", text)
    return seconds


@dataclass(frozen=True)
class Settings:
    """Settings of the service; sizes are in bytes, times in seconds.

    `Annotated` gives the parser of a variable; the others are positive whole numbers.
    """

    model_repository: Annotated[Path | str, _repository] = Path("model_repository")
    """Model repository: a folder, relative to the folder of `service.py`, or a URL in `REMOTE_REPOSITORIES`."""
    model_control_mode: Annotated[str, _word("none, explicit or poll", "none", "explicit", "poll")] = "none"
    """Model control mode of Triton. `none`: load at start; `explicit`: also on operators' requests; `poll`: also when
    the repository changes, checked every 15 s."""
    admin_keys: Annotated[str | None, str] = None
    """`NAME:KEY,NAME:KEY`: keys of operators, who may list, load and unload models under `/admin`."""
    admin_keys_file: Annotated[Path | None, _path] = None
    """File with one `NAME:KEY` per line, in place of `admin_keys`. Without both there is no `/admin`."""
    cache_dir: Annotated[Path, _path] = dataclasses.field(default_factory=default_cache_dir)
    """Folder of assembled Triton backends, the downloaded checkpoint and embeddings of images."""
    max_body_bytes: int = 32 * 1024 * 1024
    """Maximum request body; base64 makes an image a third larger than its file."""
    body_timeout: Annotated[float, _seconds] = 30.0
    """Maximum time for a request's body to arrive; then 408."""
    inference_timeout: Annotated[float, _inference_seconds] = 55.0
    """Maximum time for one call of Triton, queueing included; then 504."""
    max_requests: int = 32
    """Maximum running and waiting requests per API worker; further requests get a 503 with Retry-After."""
    max_connections: int = 1000
    """Maximum open connections per API worker, half of them from one address; fewer if file descriptors are short."""
    api_keys: Annotated[str | None, str] = None
    """`NAME:KEY,NAME:KEY`: API keys; callers must send one of them."""
    api_keys_file: Annotated[Path | None, _path] = None
    """File with one `NAME:KEY` per line, in place of `api_keys`; reloaded when it changes."""
    rate_limit: Annotated[str | None, str] = None
    """Rate limit per key, or without keys per address: `60/minute`, `10/second; 1000/hour`."""
    log_format: Annotated[str, _word("text, json or console", "text", "json", "console")] = "text"
    """Format of log lines: `text`, `json` with one document per line, or `console` with short lines for a person at a
    terminal, as in `make serve`. Triton's own lines are not changed."""
    metrics: Annotated[str, _word("open or key", "open", "key")] = "open"
    """Access to `/metrics`: `open` for everybody, or `key` for callers with an API key."""
    cors_origins: Annotated[str | None, _origins] = None
    """Other origins whose pages may call the service: `https://a.example,https://b.example`, or `*`."""
    hosts: Annotated[tuple[str, ...], _hosts] = ()
    """Host names by which callers without API keys may reach the service, besides those in `utils.edge.origins`:
    `segment.example,*.example.org`."""
    max_image_pixels: int | None = None
    """Maximum width times height of an image. The orchestrator in Triton reads this setting and the next three, with
    defaults in its config.pbtxt; here they are only validated before the start."""
    max_answer_bytes: int = 160 * 1024 * 1024
    """Maximum response: `json` with a `cutout` of 25 megapixels takes 150 MB."""
    embedding_cache_bytes: Annotated[int | None, _number(int, "a positive whole number or 0", -1)] = None
    """Maximum size of the embedding cache on disk; 0 disables it."""
    redis_url: Annotated[str | None, _redis_url] = None
    """Redis for embeddings shared by replicas: `redis://`, `rediss://` or `unix://`."""

    integrations: Annotated[tuple[str, ...], _integrations] = DEFAULT_INTEGRATIONS
    """Annotation tools whose requests are answered: some of `INTEGRATIONS`, or `none`."""
    image_origins: Annotated[tuple[str, ...], _image_origins] = ()
    """Image origins that adapters may fetch from, besides Label Studio's. A network in the list allows private
    addresses in it: `https://images.example,10.20.0.0/16`."""
    label_studio_url: Annotated[str | None, _http_url] = None
    """URL of the Label Studio server whose images are fetched."""
    label_studio_api_key: Annotated[str | None, str] = None
    """Access token of a Label Studio user who can read the images."""
    engine: Annotated[str, _word(f"one of auto, {', '.join(ENGINES)}", "auto", *ENGINES)] = "auto"
    """Engine of encoder and decoder: one of `utils.triton.plan.ENGINES`, or `auto`."""
    threads: int | None = None
    """Threads per encoder run; default: by cores."""
    encoders: int | None = None
    """Encoder instances; default: by cores or GPU."""
    orchestrators: int | None = None
    """Processes for requests on new images, and the same number for known images; default: by cores."""

    def repository_in(self, folder: Path) -> Path | None:
        """Return the model repository as a folder, relative to the given one, or None for a remote one."""
        return None if isinstance(self.model_repository, str) else folder / self.model_repository

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Return the settings with all `MOBILE_SAM_*` variables applied.

        Raises:
            SettingsError: a value is invalid.
        """
        values: dict[str, object] = {}
        for field, hint in get_type_hints(cls, include_extras=True).items():
            name = PREFIX + field.upper()
            text = environ.get(name)
            if text == "" and field in NEVER_EMPTY:
                raise SettingsError(f"{name}: expected API keys, got an empty value; unset the variable to use no keys")
            if text:
                (parse,) = getattr(hint, "__metadata__", (_positive_whole,))
                try:
                    values[field] = parse(text)
                except SettingsError as error:
                    raise SettingsError(f"{name}: {error}") from None
        return cls(**values)  # type: ignore[arg-type]
