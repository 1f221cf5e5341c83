"""The user's configuration of `pip install`, for programs that read none of it. Standard library
only, Python 3.9.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Mapping, Sequence

SECTIONS = ("global", "install", ":env:")
"""Sections that apply to `pip install`; later ones take precedence."""
SETTING = re.compile(rf"({'|'.join(SECTIONS)})\.([a-z-]+)=(.+)")
ALIASES = {"default-timeout": "timeout", "pypi-url": "index-url"}
TRUE = ("1", "y", "yes", "t", "true", "on")
"""Values that pip reads as true."""


def read(pip: Sequence[str]) -> dict[str, str]:
    """Return the options of `pip install` by name, from files and `PIP_*` variables, with single
    spaces in lists.

    `cert` is the file or folder of certificates that pip uses, also if only the variables of
    `requests` name it.

    Args:
        pip: command that runs pip.

    Raises:
        OSError, subprocess.CalledProcessError: pip cannot be run, or cannot read its configuration.
    """
    # PIP_QUIET would hide the listing.
    environment = {**os.environ, "PIP_QUIET": "0"}
    command = [*pip, "config", "list"]
    listing = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    settings = [match.groups() for match in map(SETTING.fullmatch, listing.splitlines()) if match]
    settings.sort(key=lambda setting: SECTIONS.index(setting[0]))
    values = {
        ALIASES.get(name, name): " ".join(str(ast.literal_eval(value)).split())
        for _, name, value in settings
    }
    certificates = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or ""
    return {name: value for name, value in {"cert": certificates, **values}.items() if value}


def is_set(configured: Mapping[str, str], name: str) -> bool:
    """Return whether an option without a value is set."""
    return configured.get(name, "").lower() in TRUE
