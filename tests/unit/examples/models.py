"""Import of modules and models in the examples' model repositories."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np

from tests.e2e.server import ROOT
from tests.unit.triton_backends.conftest import Response, Tensor
from tests.unit.triton_backends.graphs import TritonModelException

EXAMPLES = ROOT / "examples"


def load(example: str, model: str, name: str) -> Any:
    """Load a module of a model and register it in `sys.modules`."""
    path = EXAMPLES / example / "model_repository" / model / "1" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TritonError(str):
    INVALID_ARG = "INVALID_ARG"

    def __new__(cls, message, code=None):
        return super().__new__(cls, f"{code} {message}" if code else message)


def fake_utils() -> Any:
    """Return a stand-in for `triton_python_backend_utils`; requests are mappings of input names to arrays."""
    utils: Any = ModuleType("triton_python_backend_utils")
    utils.TritonModelException, utils.TritonError = TritonModelException, TritonError
    utils.Tensor, utils.InferenceResponse = Tensor, Response
    utils.get_input_tensor_by_name = lambda request, name: Tensor(name, request[name]) if name in request else None
    utils.triton_string_to_numpy = {"TYPE_FP32": np.float32}.__getitem__
    return utils
