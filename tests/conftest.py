"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the repository; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; set SHARED to where it lies")
    return folder
