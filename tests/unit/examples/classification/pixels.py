"""The first model of examples/classification, without Triton."""

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

from examples.classification.prepare import REPOSITORY


def pixels_module() -> Any:
    """Return the module of the model."""
    sys.modules.setdefault("triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    path = REPOSITORY / "classification_pixels" / "1" / "model.py"
    spec = importlib.util.spec_from_file_location("classification_pixels_model", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pixels_model(resize_size: int = 256) -> Any:
    """Return the initialised model."""
    model = pixels_module().TritonPythonModel()
    parameters = {"resize_size": {"string_value": str(resize_size)}}
    model.initialize({"model_config": json.dumps({"parameters": parameters})})
    return model
