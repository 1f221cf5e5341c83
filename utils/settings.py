"""Settings from environment variables, read once when `service.py` is imported.

A variable is named `MOBILE_SAM_` and the field in capitals: `MOBILE_SAM_MAX_BODY_BYTES=1000000`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from orchestrator.settings import DEFAULTS

PREFIX = "MOBILE_SAM_"
INFERENCE_TIMEOUT_S = 55.0
"""Default of `inference_timeout` with weights that encode an image within a second."""
REMOTE_REPOSITORIES = ("s3://", "gs://", "as://")
"""URL schemes of S3 and compatible storages (`s3://http://host:port/bucket/folder`), Google and
Azure."""
REDIS_SCHEMES = ("redis://", "rediss://", "unix://")
INTEGRATIONS = ("x-anylabeling", "roboflow", "cvat", "samapi", "label-studio")
"""Adapters in `utils.integrations`."""
DEFAULT_INTEGRATIONS = tuple(name for name in INTEGRATIONS if name != "label-studio")
"""Adapters that are on by default: all that do not fetch images from elsewhere."""
OTHER_VARIABLES = (
    "MOBILE_SAM_URL",
    "MOBILE_SAM_API_KEY",
    "MOBILE_SAM_EMBEDDING_CACHE_DIR",
    "MOBILE_SAM_ORCHESTRATOR_PATH",
    "MOBILE_SAM_PYTHON_BACKENDS",
    "MOBILE_SAM_TRITON_METRICS_PORT",
    "MOBILE_SAM_TRITON_RUN",
)
"""Variables with our prefix that are no field of `Settings`: of clients, of the orchestrator,
and of Triton."""
SERVICE_LINK = re.compile(
    r"MOBILE_SAM_([A-Z0-9_]+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets in every pod beside a Service whose name begins with
`mobile-sam`."""
SERVICE_LINK_URL = re.compile(r"MOBILE_SAM_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://.*")
"""One more of these variables, with its value: without it, a misspelt port would pass."""
NEVER_EMPTY = ("api_keys", "api_keys_file", "admin_keys", "admin_keys_file")
"""Fields whose variable must not be empty: a mistake must not open the service to everybody."""


class SettingsError(ValueError):
    """Invalid value of an environment variable."""


def default_cache_dir() -> Path:
    """Return `$XDG_CACHE_HOME/mobile-sam-triton`, or `~/.cache/mobile-sam-triton`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mobile-sam-triton"


def _expect(
    expected: str, valid: Callable[[Any], object] = lambda _: True, *, secret: bool = False
) -> WrapValidator:
    """Return a validator whose message says what a value should be, and what came unless that may
    hold a password.

    Args:
        expected: what the type, and `valid` where there is one, accept.
        valid: returns whether a value of the type is valid, or raises ValueError.
        secret: do not show the value.
    """

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            checked = validate(value)
            if valid(checked):
                return checked
        except ValidationError as error:
            if error.errors()[0]["type"] == "value_error":  # another validator's message
                raise
        except ValueError:
            pass
        raise ValueError(f"expected {expected}" + ("" if secret else f", got {value!r}"))

    return WrapValidator(check)


def _split(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


def _folder(value: Path | str) -> Path | str:
    return value if isinstance(value, str) and "://" in value else Path(value).expanduser()


def _is_repository(value: Path | str) -> bool:
    return isinstance(value, Path) or value.startswith(REMOTE_REPOSITORIES)


def _is_http_url(text: str) -> bool:
    parts = urlsplit(text)
    valid = (
        parts.scheme in ("http", "https")
        and parts.hostname
        and "@" not in parts.netloc
        and (parts.port or 1)
    )
    return bool(valid) and not (parts.query or parts.fragment)


def _is_image_origin(text: str) -> bool:
    return "://" not in text or (_is_http_url(text) and not urlsplit(text).path)


def _is_image_source(text: str) -> bool:
    return "://" in text or bool(ipaddress.ip_network(text))


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return text == "*" or bool(parts.scheme and parts.netloc and not parts.path and not parts.query)


Item = TypeVar("Item")
Texts = Annotated[tuple[Item, ...], NoDecode, BeforeValidator(_split)]
"""Texts that are separated by commas in the variable."""
WithoutSlash = Annotated[str, AfterValidator(lambda text: text.rstrip("/"))]
Count = Annotated[int, Field(gt=0), _expect("a positive whole number")]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _expect("a positive number")]
Switch = Annotated[bool, _expect("on or off")]
File = Annotated[Path, AfterValidator(Path.expanduser)]
Origin = Annotated[str, _expect("origins such as https://a.example, or *", _is_origin)]
HOSTS = "host names without a port, such as segment.example or *.example.org"
Host = Annotated[str, _expect(HOSTS, re.compile(r"[A-Za-z0-9._*-]+").fullmatch)]
ImageOrigin = Annotated[
    WithoutSlash,
    _expect("origins such as https://images.example", _is_image_origin),
    _expect(
        "origins such as https://images.example, and networks such as 10.20.0.0/16",
        _is_image_source,
    ),
]
Integration = Annotated[
    str, _expect(f"none, or some of {', '.join(INTEGRATIONS)}", INTEGRATIONS.__contains__)
]
ENGINES = ("onnxruntime", "openvino", "openvino-bf16")
"""`onnxruntime`: float32, on a GPU if there is one. `openvino`: float32, on the CPU.
`openvino-bf16`: the same with the encoder, and the decoder of all masks, in bfloat16."""
CHOSEN_ENGINES = ("auto", *ENGINES)


class Settings(BaseSettings):
    """Settings of the service; sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        hide_input_in_errors=True,  # URLs may contain passwords
        validate_default=False,
        protected_namespaces=(),
    )

    model_repository: Annotated[
        Path | str,
        AfterValidator(_folder),
        _expect(f"a folder, or a URL with {', '.join(REMOTE_REPOSITORIES)}", _is_repository),
    ] = Path("model_repository")
    """Model repository: a folder, relative to the folder of `service.py`, or a URL in
    `REMOTE_REPOSITORIES`."""
    model_control_mode: Annotated[
        Literal["none", "explicit", "poll"], _expect("none, explicit or poll")
    ] = "none"
    """Model control mode of Triton. `none`: load at start; `explicit`: also on operators'
    requests; `poll`: also when the repository changes, checked every 15 s."""
    expected_weights: (
        Annotated[
            str,
            AfterValidator(str.lower),
            _expect("a SHA-256, 64 hex digits", re.compile(r"[0-9a-fA-F]{64}").fullmatch),
        ]
        | None
    ) = None
    """SHA-256 of the weights that version 1 must have, as `/info` names it; with others the
    service does not start. `make serve` sets it to that of the weights it has just written."""
    admin_keys: str | None = None
    """`NAME:KEY,NAME:KEY`: keys of operators, who may list, load and unload models under
    `/admin`."""
    admin_keys_file: File | None = None
    """File with one `NAME:KEY` per line, in place of `admin_keys`. Without both there is no
    `/admin`."""
    cache_dir: File = Field(default_factory=default_cache_dir)
    """Folder of assembled Triton backends, the downloaded checkpoint and embeddings of images."""
    max_body_bytes: Count = 32 * 1024 * 1024
    """Maximum request body; base64 makes an image a third larger than its file."""
    body_timeout: Seconds = 30.0
    """Maximum time for a request's body to arrive; then 408."""
    inference_timeout: Seconds | None = None
    """Maximum time for one call of Triton, queueing included; then 504. Default: 55 s, or with
    slower weights twice the time to encode `max_requests` images."""
    max_requests: Count = 32
    """Maximum running and waiting requests per API worker; further requests get a 503 with
    Retry-After. Up to four callers share them; each further caller has room for a quarter of
    them, up to eight times as many in all."""
    max_connections: Count = 1000
    """Maximum open connections per API worker; fewer if file descriptors are short."""
    api_keys: str | None = None
    """`NAME:KEY,NAME:KEY`: API keys; callers must send one of them."""
    api_keys_file: File | None = None
    """File with one `NAME:KEY` per line, in place of `api_keys`; reloaded when it changes."""
    rate_limit: str | None = None
    """Rate limit per key, or without keys per address: `60/minute`, `10/second; 1000/hour`."""
    log_format: Annotated[Literal["text", "json", "console"], _expect("text, json or console")] = (
        "text"
    )
    """Format of log lines: `text`, `json` with one document per line, or `console` with short
    lines for a person at a terminal, as in `make serve`. Triton's own lines are not changed."""
    metrics: Annotated[Literal["open", "key"], _expect("open or key")] = "open"
    """Access to `/metrics`: `open` for everybody, or `key` for callers with an API key."""
    metrics_by_key: Switch = False
    """Whether `mobile_sam_answers_total` has the name of the caller's key as a label, for up to
    100 names."""
    cors_origins: Texts[Origin] = ()
    """Other origins whose pages may call the service: `https://a.example,https://b.example`, or
    `*`."""
    local_decoding: Switch = True
    """Whether callers may get embeddings and the decoder's file, to decode by themselves."""
    hosts: Texts[Host] = ()
    """Host names by which callers without API keys may reach the service, besides those in
    `utils.edge.origins`: `segment.example,*.example.org`."""
    max_image_pixels: Count | None = None
    """Maximum width times height of an image. The orchestrator in Triton reads this setting and
    the next three from the environment as well, with the defaults of `orchestrator.settings`."""
    max_answer_bytes: Count = DEFAULTS.max_answer_bytes
    """Maximum response: `json` with a `cutout` of 25 megapixels takes 150 MB."""
    embedding_cache_bytes: (
        Annotated[int, Field(ge=0), _expect("a positive whole number or 0")] | None
    ) = None
    """Maximum size of the embedding cache on disk; 0 disables it."""
    redis_url: (
        Annotated[
            str,
            _expect(
                f"a URL with {', '.join(REDIS_SCHEMES)}",
                lambda url: url.startswith(REDIS_SCHEMES),
                secret=True,
            ),
        ]
        | None
    ) = None
    """Redis for embeddings shared by replicas: `redis://`, `rediss://` or `unix://`."""

    integrations: Annotated[
        Texts[Integration], BeforeValidator(lambda value: () if value == "none" else value)
    ] = DEFAULT_INTEGRATIONS
    """Annotation tools whose requests are answered: some of `INTEGRATIONS`, or `none`."""
    cvat_in_browser: Switch = False
    """Whether CVAT gets a function whose answers, embeddings, it decodes in the browser."""
    image_origins: Texts[ImageOrigin] = ()
    """Image origins that adapters may fetch from, besides Label Studio's. A network in the list
    allows private addresses in it: `https://images.example,10.20.0.0/16`."""
    label_studio_url: (
        Annotated[WithoutSlash, _expect("an http or https URL", _is_http_url)] | None
    ) = None
    """URL of the Label Studio server whose images are fetched."""
    label_studio_api_key: str | None = None
    """Access token of a Label Studio user who can read the images."""
    engine: Annotated[
        str, _expect(f"one of {', '.join(CHOSEN_ENGINES)}", CHOSEN_ENGINES.__contains__)
    ] = "auto"
    """Engine of encoder and decoder: one of `ENGINES`, or `auto`."""
    threads: Count | None = None
    """Threads per encoder run; default: by cores."""
    encoders: Count | None = None
    """Encoder instances; default: by cores or GPU."""
    orchestrators: Count | None = None
    """Processes for requests on new images, and the same number for known images; default: by
    cores."""

    def repository_in(self, folder: Path) -> Path | None:
        """Return the model repository as a folder, relative to the given one, or None for a
        remote one.
        """
        return None if isinstance(self.model_repository, str) else folder / self.model_repository

    def timeout_s(self, encode_s: float) -> float:
        """Return the maximum time for one call of Triton, if the encoder takes this many seconds
        for an image.
        """
        return self.inference_timeout or max(INFERENCE_TIMEOUT_S, 2 * self.max_requests * encode_s)

    @classmethod
    def from_environment(cls) -> Settings:
        """Return the settings with all `MOBILE_SAM_*` variables applied.

        Raises:
            SettingsError: a value is invalid, or a variable with the prefix is unknown.
        """
        check_names(os.environ)
        for field in NEVER_EMPTY:
            if os.environ.get(PREFIX + field.upper()) == "":
                expected = (
                    "expected API keys, got an empty value; unset the variable to use no keys"
                )
                raise SettingsError(f"{PREFIX}{field.upper()}: {expected}")
        try:
            return cls()
        except ValidationError as error:
            first = error.errors()[0]
            raise SettingsError(
                f"{PREFIX}{str(first['loc'][0]).upper()}: {first['ctx']['error']}"
            ) from None


def known_variables() -> set[str]:
    """Return the names of all variables with our prefix that something reads."""
    return {PREFIX + field.upper() for field in Settings.model_fields}.union(OTHER_VARIABLES)


def check_names(environment: Mapping[str, str]) -> None:
    """Check that every variable with our prefix is read by something.

    Raises:
        SettingsError: one is not, for example because it is misspelt.
    """
    known = known_variables()
    for name, value in environment.items():
        if not name.upper().startswith(PREFIX) or name in known:
            continue
        if SERVICE_LINK.fullmatch(name) or SERVICE_LINK_URL.fullmatch(f"{name}={value}"):
            continue
        # The prefix makes all of them alike.
        words = sorted(variable.removeprefix(PREFIX) for variable in known)
        similar = get_close_matches(name.upper().removeprefix(PREFIX), words, 1)
        remedy = (
            f"did you mean {PREFIX}{similar[0]}?"
            if similar
            else "docs/deployment.md#settings lists all; unset it"
        )
        raise SettingsError(f"{name}: unknown setting; {remedy}")
