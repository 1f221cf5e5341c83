"""The example's code that Triton runs, which lies where no import finds it."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.e2e.server import ROOT

EXAMPLE = ROOT / "examples" / "classification"
REPOSITORY = EXAMPLE / "model_repository"


def load(model: str, name: str) -> ModuleType:
    """A module that lies beside a model's code."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / model / "1" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
