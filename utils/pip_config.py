"""Translation of pip's configuration for uv, which does not read it. Standard library only."""

from __future__ import annotations

import ast
import math
import os
import re
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

SECTIONS = ("global", "install", ":env:")
"""Sections that apply to `pip install`; later ones take precedence."""
SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.([a-z-]+)=(.+)")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
FALSE = ("0", "n", "no", "f", "false", "off")
"""Values that pip reads as false."""
NO_EFFECT = frozenset(
    (
        *("break-system-packages", "compile", "config-file", "debug", "disable-pip-version-check", "exists-action"),
        *("local-log", "log", "log-file", "no-clean", "no-color", "no-compile", "no-deps", "no-input"),
        *("no-python-version-warning", "no-warn-conflicts", "no-warn-script-location", "pre", "prefer-binary"),
        *("progress-bar", "quiet", "require-hashes", "require-venv", "require-virtualenv", "resume-retries"),
        *("root-user-action", "upgrade", "upgrade-strategy", "use-deprecated", "use-feature", "use-pep517", "verbose"),
    )
)
"""Options that affect neither which packages are installed from locked requirements nor their source."""


class UnsupportedOptionError(Exception):
    """Option in pip's configuration that uv does not support; the message is its name."""


def read(python: Path) -> dict[str, str]:
    """Return the options of `pip install` in an environment, from files and `PIP_*` variables.

    Raises:
        OSError, subprocess.CalledProcessError: pip cannot be run, or cannot read its configuration.
    """
    # PIP_QUIET would hide the listing.
    done = subprocess.run(
        [str(python), "-m", "pip", "config", "list"],
        env={**os.environ, "PIP_QUIET": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    return settings(done.stdout)


def settings(listing: str) -> dict[str, str]:
    """Return the options in the output of `pip config list`, by name."""
    found = [match.groups() for match in map(SETTING.fullmatch, listing.splitlines()) if match]
    found.sort(key=lambda setting: SECTIONS.index(setting[0]))
    values = {name: str(ast.literal_eval(value)) for _, name, value in found if ast.literal_eval(value)}
    for name, alias in (("timeout", "default-timeout"), ("index-url", "pypi-url")):
        if alias in values:
            values.setdefault(name, values.pop(alias))
    return values


def for_uv(configured: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment variables that make `uv pip install` use pip's sources.

    URLs, which may contain passwords, are in the variables: every user of the machine can see arguments.

    Raises:
        UnsupportedOptionError: uv does not support an option.
    """
    # Like pip, merge all indexes. uv does not by default, because an index could offer a different package of the same
    # name; the hashes rule that out.
    arguments = ["--index-strategy", "unsafe-best-match"]
    variables = {} if "cert" in configured else _default_certificates()
    for name, value in configured.items():
        if name in VARIABLES:
            variables |= VARIABLES[name](value)
        elif name == "only-binary":
            arguments += [f"--only-binary={part}" for part in value.split(",")]
        elif name == "no-index":
            arguments += ["--no-index"] * (value.lower() not in FALSE)
        elif name in ("timeout", "retries"):
            variables[f"UV_HTTP_{name.upper()}"] = _whole_number(name, value)
        elif name not in NO_EFFECT and value.lower() not in FALSE:
            raise UnsupportedOptionError(name)
    return arguments, variables


def _expanded(path: str) -> str:
    """Return a path with `~` expanded, or a URL unchanged."""
    return str(Path(path).expanduser()) if path.startswith("~") else path


def _may_exist(link: str) -> bool:
    """Return whether this is a URL or an existing path: pip ignores missing paths, and uv fails."""
    parts = urlsplit(link)
    return parts.scheme not in ("", "file") or Path(unquote(parts.path)).exists()


def _whole_number(name: str, value: str) -> str:
    """Return a number rounded up, because uv accepts no fractions of a second."""
    try:
        return str(math.ceil(float(value)))
    except (ValueError, OverflowError):
        raise UnsupportedOptionError(name) from None


def _certificates(path: str) -> dict[str, str]:
    """Return uv's variable for a file or folder of certificates."""
    return {"SSL_CERT_DIR" if Path(path).is_dir() else "SSL_CERT_FILE": path}


def _default_certificates() -> dict[str, str]:
    """Return uv's variable for pip's default certificates: those of `requests`, or the system's."""
    bundle = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if bundle:
        return _certificates(bundle)
    system = ssl.get_default_verify_paths()
    found = system.cafile or (system.capath and any(Path(system.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "1"} if found else {}


VARIABLES: dict[str, Callable[[str], dict[str, str]]] = {
    "index-url": lambda value: {"UV_DEFAULT_INDEX": value},
    "extra-index-url": lambda value: {"UV_INDEX": " ".join(value.split())},
    "find-links": lambda value: {"UV_FIND_LINKS": ",".join(filter(_may_exist, map(_expanded, value.split())))},
    "cert": lambda value: _certificates(_expanded(value)),
    "client-cert": lambda value: {"SSL_CLIENT_CERT": _expanded(value)},
    "trusted-host": lambda value: {"UV_INSECURE_HOST": " ".join(value.split())},
    "proxy": lambda value: dict.fromkeys(PROXIES, value if "://" in value else f"http://{value}"),
    "cache-dir": lambda value: {"UV_CACHE_DIR": str(Path(_expanded(value), "uv"))},
    "no-cache-dir": lambda _: {"UV_NO_CACHE": "1"},  # pip ignores the value
    "keyring-provider": lambda value: {"UV_KEYRING_PROVIDER": "subprocess" if value == "subprocess" else "disabled"},
}
"""Functions from the value of an option to environment variables of uv."""
