"""Inference engines with a common interface, named as in the service's `result`: "onnxruntime
f32".
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import openvino

from triton_backends.common import onnxruntime_engine
from utils.triton.machine import this_machine
from utils.triton.versions import NETWORK_FILE

Array = npt.NDArray[Any]
Graph = Callable[[Sequence[str], Mapping[str, Array]], list[Array]]
"""Loaded graph: takes the names of the outputs, and the inputs. Any number of threads may call
it."""

ONNX_RUNTIME, CUDA, OPENVINO_F32, OPENVINO_BF16 = ENGINES = (
    "onnxruntime f32",
    "cuda f32",
    "openvino f32",
    "openvino bf16",
)


def available() -> list[str]:
    """Return the engines that this machine can run."""
    machine = this_machine()
    missing = {CUDA: not machine.gpu_memory_bytes, OPENVINO_BF16: not machine.bf16}
    return [engine for engine in ENGINES if not missing.get(engine)]


def load(repository: Path, part: str, engine: str, file: str = NETWORK_FILE) -> Graph:
    """Load the `encoder` or the `decoder` of a model repository into an engine, one of
    `ENGINES`; `file` is the network's, or `GPU_NETWORK_FILE`.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine!r}")
    graph, (name, precision) = (
        repository / f"mobile_sam_{part}" / "1" / file,
        engine.split(),
    )
    if name == "openvino":
        return _openvino(graph, precision)
    # As in config.pbtxt: the default measures all convolutions first, and the decoder would run in
    # TF32.
    cuda = {"cudnn_conv_algo_search": "HEURISTIC"} | (
        {"use_tf32": "0"} if part == "decoder" else {}
    )
    return _onnxruntime(graph, [(onnxruntime_engine.CUDA, cuda)] if name == "cuda" else [])


def _onnxruntime(graph: Path, gpu: Sequence[onnxruntime_engine.Provider]) -> Graph:
    engine = onnxruntime_engine.Engine(graph, {}, [*gpu, onnxruntime_engine.CPU])
    return lambda outputs, inputs: engine.run(dict(inputs), list(outputs))


def _openvino(graph: Path, precision: str) -> Graph:
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    compiled, local = openvino.Core().compile_model(graph, "CPU", hints), threading.local()

    def run(outputs: Sequence[str], inputs: Mapping[str, Array]) -> list[Array]:
        if not hasattr(local, "request"):
            local.request = compiled.create_infer_request()
        answer = local.request.infer(dict(inputs), share_inputs=True)
        return [answer[name] for name in outputs]

    return run
