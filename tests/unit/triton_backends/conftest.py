"""Fixtures that load Python-based backends outside Triton."""

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.unit.triton_backends.graphs import TritonModelException

BACKENDS = Path(__file__).resolve().parents[3] / "triton_backends"


class Tensor:
    def __init__(self, name, array):
        self.name, self.array = name, array

    def as_numpy(self):
        return self.array


class Response:
    def __init__(self, output_tensors=(), error=None):
        self.outputs = {tensor.name: tensor.array for tensor in output_tensors}
        self.error = error


@pytest.fixture
def load_backend(monkeypatch):
    """Function that loads a backend's module with a stand-in for `triton_python_backend_utils`."""

    def load(name: str) -> Any:
        utils: Any = types.ModuleType("triton_python_backend_utils")
        utils.TritonModelException = TritonModelException
        utils.TritonError = str
        utils.Tensor = Tensor
        utils.InferenceResponse = Response
        utils.get_input_tensor_by_name = lambda request, name: Tensor(name, request.arrays[name])
        monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
        monkeypatch.setattr(sys, "path", list(sys.path))  # the backend adds to it
        monkeypatch.delitem(sys.modules, "graph_model", raising=False)
        module: Any = types.ModuleType(f"{name}_backend")
        module.__file__ = source = BACKENDS / name / "model.py"
        exec(compile(source.read_text(), source, "exec"), module.__dict__)
        return module

    return load
