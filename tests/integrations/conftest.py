"""Environments of the tools that the integrations are tested with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.environment import ROOT, install
from tools.prerequisites import InstallationError

ENVIRONMENTS = ROOT / ".venv-integrations"


@pytest.fixture(scope="session")
def tool_environment() -> Callable[[str], Path]:
    """Return a function that returns the `bin` folder of a tool's environment, installing it if needed.

    The environment of `name` has the packages of `requirements/integrations-{name}.txt`. Without an index to install
    them from, the test is skipped, or fails where the variable CI is set. Call it in a session fixture per tool, which
    then tries to install only once.
    """

    def bin_folder(name: str) -> Path:
        if sys.version_info < (3, 11):
            pytest.skip("the tools need Python 3.11")
        folder = ENVIRONMENTS / name
        try:
            install(folder, [f"integrations-{name}"])
        except InstallationError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"{name}: {error}")
        return folder / "bin"

    return bin_folder
