"""Inference engines with a common interface, named as in the service's `result`: "onnxruntime
f32".
"""

import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
import openvino
from onnxruntime.transformers import float16

from triton_backends.common import onnxruntime_engine
from utils.triton.machine import this_machine
from utils.triton.versions import NETWORK_FILE

Array = npt.NDArray[Any]
Graph = Callable[[Sequence[str], Mapping[str, Array]], list[Array]]
"""Loaded graph: takes the names of the outputs, and the inputs. Any number of threads may call
it."""

ONNX_RUNTIME, ONNX_RUNTIME_F16, CUDA, CUDA_F16, OPENVINO_F32, OPENVINO_BF16 = ENGINES = (
    "onnxruntime f32",
    "onnxruntime f16",
    "cuda f32",
    "cuda f16",
    "openvino f32",
    "openvino bf16",
)
"""On a CPU, ONNX Runtime computes in float32 what float16 holds: `f16` shows masks there, no
times."""


def available() -> list[str]:
    """Return the engines that this machine can run."""
    machine = this_machine()
    has_no_gpu = not machine.gpu_memory_bytes
    missing = {CUDA: has_no_gpu, CUDA_F16: has_no_gpu, OPENVINO_BF16: not machine.bf16}
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
    gpu = [(onnxruntime_engine.CUDA, cuda | {"device_id": "0"})] if name == "cuda" else []
    if precision == "f32":
        return _onnxruntime(graph, gpu)
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder, "model.onnx")
        onnx.save(half_precision(onnx.load(graph)), half, save_as_external_data=True)
        return _onnxruntime(half, gpu)


def half_precision(network: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network in float16, but for its inputs and outputs, and for layer normalisation,
    whose squares can exceed the largest float16.
    """
    kept = [*float16.DEFAULT_OP_BLOCK_LIST, "LayerNormalization"]
    converted: onnx.ModelProto = float16.convert_float_to_float16(
        network, keep_io_types=True, op_block_list=kept
    )
    return converted


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
