"""Import of the example's modules, which lie in the model repository."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from tests.e2e.server import ROOT

EXAMPLE = ROOT / "examples" / "classification"
REPOSITORY = EXAMPLE / "model_repository"


def load(model: str, name: str) -> ModuleType:
    """Load a module of a model."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / model / "1" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
