"""Environments that tests install beside their own."""

from pathlib import Path

import pytest

from tools.environment import ROOT, install
from tools.prerequisites import InstallationError

ENVIRONMENTS = ROOT / ".venv-integrations"


def environment(name: str, *requirements: str) -> Path:
    """Return the `bin` folder of an environment, installed if needed; skip the test without an
    index to install from.

    Args:
        name: name of its folder.
        requirements: names of files in `requirements/`, without extension.
    """
    try:
        install(ENVIRONMENTS / name, requirements)
    except InstallationError as error:
        pytest.skip(f"{name}: {error}")
    return ENVIRONMENTS / name / "bin"
