"""Import of the example's modules, which lie in the model repository."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from tests.e2e.server import ROOT

FOLDER = ROOT / "examples" / "text_generation" / "model_repository" / "text_generation_stream" / "1"


def load(name: str) -> Any:
    """Load a module and register it in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
