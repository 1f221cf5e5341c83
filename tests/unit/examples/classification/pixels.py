"""The first model of examples/classification, without Triton."""

import json
import runpy
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

from examples.classification.prepare import REPOSITORY


def pixels_module() -> Any:
    """Return the module of the model."""
    sys.modules.setdefault("triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    return SimpleNamespace(
        **runpy.run_path(str(REPOSITORY / "classification_pixels" / "1" / "model.py"))
    )


def pixels_model(resize_size: int = 256) -> Any:
    """Return the initialised model."""
    model = pixels_module().TritonPythonModel()
    parameters = {"resize_size": {"string_value": str(resize_size)}}
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    return model
