"""Inference engines with a common interface, named as in the service's `result`: "onnxruntime f32"."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import openvino

Array = npt.NDArray[Any]

ONNX_RUNTIME, OPENVINO_F32, OPENVINO_BF16 = ENGINES = ("onnxruntime f32", "openvino f32", "openvino bf16")


class Engine(Protocol):
    """Loaded graph, which any number of threads may run."""

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        """Run the graph; return the named outputs."""


class OnnxRuntime:
    """ONNX Runtime on the CPU, with its default number of threads."""

    def __init__(self, graph: Path) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # As in the service's backend: spinning threads would slow down the next arm.
        options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        """Run the graph; return the named outputs."""
        return [np.asarray(tensor) for tensor in self._session.run(outputs, inputs)]


class OpenVino:
    """OpenVINO on the CPU; each thread reuses one inference request."""

    def __init__(self, graph: Path, precision: str) -> None:
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
        self._compiled = openvino.Core().compile_model(graph, "CPU", hints)
        self._own = threading.local()

    def run(self, outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        """Run the graph; return the named outputs."""
        if not hasattr(self._own, "request"):
            self._own.request = self._compiled.create_infer_request()
        found = self._own.request.infer(dict(inputs), share_inputs=True)
        return [found[name] for name in outputs]


def load(graph: Path, engine: str) -> Engine:
    """Load a graph into an engine, one of `ENGINES`."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    name, precision = engine.split()
    return OnnxRuntime(graph) if name == "onnxruntime" else OpenVino(graph, precision)
