"""Translation of pip's configuration for uv, which does not read it, and for image builds. Standard library only.

python3 -m tools.pip_config FOLDER      write `pip.conf` and `ca.crt` for image builds as this machine's pip has them
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

SECTIONS = ("global", "install", ":env:")
"""Sections that apply to `pip install`; later ones take precedence."""
SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.([a-z-]+)=(.+)")
ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "client-cert": "SSL_CLIENT_CERT",
    "timeout": "UV_HTTP_TIMEOUT",
    "retries": "UV_HTTP_RETRIES",
    "no-cache-dir": "UV_NO_CACHE",
}
"""uv's variables for options of pip that have the same values, up to white space."""
NO_EFFECT = frozenset(
    (
        *("break-system-packages", "config-file", "disable-pip-version-check", "exists-action", "log", "log-file"),
        *("no-color", "no-input", "no-python-version-warning", "no-warn-conflicts", "no-warn-script-location"),
        *("prefer-binary", "progress-bar", "quiet", "require-venv", "require-virtualenv", "resume-retries"),
        *("root-user-action", "upgrade", "use-deprecated", "use-feature", "verbose"),
    )
)
"""Options that affect neither which packages are installed from locked requirements nor their source."""
TRUE = ("1", "y", "yes", "t", "true", "on")
"""Values that pip reads as true."""
EXPORTED = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
"""Options that image builds get."""
CERTIFICATES = "/run/secrets/ca.crt"
"""Path of `ca.crt` during an image build."""
SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class UnsupportedOptionError(Exception):
    """Option in pip's configuration that is not translated; the message is its name."""


def read(python: Path) -> dict[str, str]:
    """Return the options of `pip install` in an environment, from files and `PIP_*` variables.

    Raises:
        OSError, subprocess.CalledProcessError: pip cannot be run, or cannot read its configuration.
    """
    command = [str(python), "-m", "pip", "config", "list"]
    # PIP_QUIET would hide the listing.
    done = subprocess.run(command, env={**os.environ, "PIP_QUIET": "0"}, capture_output=True, text=True, check=True)
    return options(done.stdout)


def options(listing: str) -> dict[str, str]:
    """Return the options in the output of `pip config list`, by name."""
    found = [match.groups() for match in map(SETTING.fullmatch, listing.splitlines()) if match]
    found.sort(key=lambda setting: SECTIONS.index(setting[0]))
    values = {ALIASES.get(name, name): str(ast.literal_eval(value)) for _, name, value in found}
    return {name: " ".join(value.split()) for name, value in values.items() if value.strip()}


def for_uv(configured: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment variables that make `uv pip install` use pip's sources.

    URLs, which may contain passwords, are in the variables: every user of the machine can see arguments.

    Args:
        configured: pip's options by name.

    Raises:
        UnsupportedOptionError: an option has no translation.
    """
    arguments = []
    # Like pip, merge all indexes. uv does not by default, because an index could offer a different package of the same
    # name; the hashes rule that out.
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", **_certificates(configured.get("cert"))}
    for name, value in configured.items():
        if name in ("timeout", "retries") and not value.isdecimal():
            raise UnsupportedOptionError(name)
        if name in VARIABLES:
            variables[VARIABLES[name]] = value
        elif name == "cache-dir":
            variables["UV_CACHE_DIR"] = str(Path(value, "uv").expanduser())
        elif name == "no-index":
            arguments += ["--no-index"] * (value.lower() in TRUE)
        elif name == "find-links":
            variables["UV_FIND_LINKS"] = ",".join(filter(_may_exist, map(os.path.expanduser, value.split())))
        elif name == "proxy":
            proxy = value if "://" in value else f"http://{value}"
            variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        elif name != "cert" and name not in NO_EFFECT:
            raise UnsupportedOptionError(name)
    return arguments, variables


def _may_exist(link: str) -> bool:
    """Return whether this is a URL or an existing path: pip ignores missing paths, and uv fails."""
    parts = urlsplit(link)
    return parts.scheme not in ("", "file") or Path(unquote(parts.path)).exists()


def _certificates(configured: str | None) -> dict[str, str]:
    """Return uv's variable for pip's certificates: configured ones, else `requests`' variables, else the system's."""
    bundle = configured or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    if bundle:
        path = Path(bundle).expanduser()
        return {"SSL_CERT_DIR" if path.is_dir() else "SSL_CERT_FILE": str(path)}
    system = ssl.get_default_verify_paths()
    found = system.cafile or (system.capath and any(Path(system.capath).iterdir()))
    return {"UV_SYSTEM_CERTS": "1"} if found else {}


def export(configured: Mapping[str, str], folder: Path) -> None:
    """Write `pip.conf` and `ca.crt` for image builds, without local folders as indexes.

    Args:
        configured: pip's options by name.
        folder: folder for both files.
    """
    shutil.copyfile(configured.get("cert") or SYSTEM_CERTIFICATES, folder / "ca.crt")
    lines = ["[global]", f"cert = {CERTIFICATES}"]
    for name in EXPORTED:
        parts = [part for part in configured.get(name, "").split() if not part.startswith(("file:", "/"))]
        lines += [f"{name} = {' '.join(parts)}"] * bool(parts)
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    export(read(Path(sys.executable)), Path(sys.argv[1]))
