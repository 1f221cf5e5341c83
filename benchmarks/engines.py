"""Inference engines with a common interface, named as in the service's `result`: "onnxruntime f32"."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import openvino

from utils.triton.machine import this_machine

Array = npt.NDArray[Any]
Graph = Callable[[Sequence[str], Mapping[str, Array]], list[Array]]
"""Loaded graph: takes the names of the outputs, and the inputs. Any number of threads may call it."""

ONNX_RUNTIME, CUDA, OPENVINO_F32, OPENVINO_BF16 = ENGINES = (
    "onnxruntime f32",
    "cuda f32",
    "openvino f32",
    "openvino bf16",
)


def available() -> list[str]:
    """Return the engines that this machine can run."""
    machine = this_machine()
    missing = {CUDA: not machine.gpus, OPENVINO_BF16: not machine.bf16}
    return [engine for engine in ENGINES if not missing.get(engine)]


def load(graph: Path, engine: str) -> Graph:
    """Load a graph into an engine, one of `ENGINES`."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    name, precision = engine.split()
    return _openvino(graph, precision) if name == "openvino" else _onnxruntime(graph, on_gpu=name == "cuda")


def _onnxruntime(graph: Path, *, on_gpu: bool) -> Graph:
    if on_gpu:
        ort.preload_dlls()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # As in the service's backend: spinning threads would slow down the next arm.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    providers = ["CUDAExecutionProvider"] * on_gpu + ["CPUExecutionProvider"]
    session = ort.InferenceSession(graph, options, providers=providers, enable_fallback=0)
    return lambda outputs, inputs: [np.asarray(tensor) for tensor in session.run(outputs, inputs)]


def _openvino(graph: Path, precision: str) -> Graph:
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    compiled, own = openvino.Core().compile_model(graph, "CPU", hints), threading.local()

    def run(outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        found = own.request.infer(dict(inputs), share_inputs=True)
        return [found[name] for name in outputs]

    return run
