"""A graph that ONNX Runtime runs: in the backend `onnxruntime`, or in the process that asks for its
answers.

These `parameters` of a model are options of its sessions: `intra_op_thread_count`,
`inter_op_thread_count`, `execution_mode` (0 sequential, 1 parallel).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnxruntime as ort

Array = npt.NDArray[Any]
Signature = dict[str, tuple[str, list[int]]]
Provider = tuple[str, dict[str, str]]

ERROR = 3
"""ONNX Runtime's log severity."""
CPU: Provider = ("CPUExecutionProvider", {})
CUDA = "CUDAExecutionProvider"
CUDA_OPTIONS: dict[str, dict[str, str]] = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "gpu_mem_limit": {},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
    "use_tf32": {},
}
"""Parameters of the config, which are also ONNX Runtime's options, and its names for their
values if it has any."""


class Engine:
    """A session of an ONNX file."""

    one_by_one = False

    def __init__(
        self, path: Path, parameters: Mapping[str, str], providers: Sequence[Provider] = (CPU,)
    ) -> None:
        """Load the file.

        Args:
            path: an ONNX file.
            parameters: options, see above; others are ignored.
            providers: ONNX Runtime's providers in order of preference.

        Raises:
            ValueError: a provider cannot be loaded.
        """
        # Otherwise ONNX Runtime would replace a provider without its libraries by the CPU, with a
        # page of messages.
        ort.set_default_logger_severity(ERROR)
        if CUDA in dict(providers):
            # CUDA's from their packages, which are on no search path, else the machine's
            ort.preload_dlls()
        options = session_options(parameters)
        self.session = ort.InferenceSession(
            str(path), options, providers=list(providers), enable_fallback=0
        )
        if missing := [name for name, _ in providers if name not in self.session.get_providers()]:
            raise ValueError(
                f"onnxruntime {ort.__version__} cannot load {missing[0]}: its message above names"
                " the missing library"
            )
        self.inputs, self.outputs = (
            signature(self.session.get_inputs()),
            signature(self.session.get_outputs()),
        )

    def run(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        """Return the named outputs."""
        answers: list[Array] = self.session.run(names, feed)
        return answers


def session_options(parameters: Mapping[str, str]) -> ort.SessionOptions:
    """Return ONNX Runtime's options for the model's `parameters`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(parameters.get("intra_op_thread_count", 0))
    options.inter_op_num_threads = int(parameters.get("inter_op_thread_count", 0))
    if parameters.get("execution_mode") == "1":
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.log_severity_level = ERROR
    # Waiting threads spin for 20 us, which is enough on an idle machine. Longer spinning makes a
    # run three times slower when others use the cores, as encoder, decoder and orchestrator do
    # here.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def read_signatures(path: Path) -> tuple[Signature, Signature]:
    """Return the inputs and outputs of an ONNX file without optimizing it."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=[CPU])
    return signature(session.get_inputs()), signature(session.get_outputs())


def signature(nodes: list[Any]) -> Signature:
    """Return ONNX Runtime's type and the shape, -1 for a variable size, of a model's inputs or
    outputs, by name.
    """
    return {
        node.name: (node.type, [size if isinstance(size, int) else -1 for size in node.shape])
        for node in nodes
    }


def cuda_provider(parameters: Mapping[str, str], device: int) -> Provider:
    """Return the CUDA provider with a model's `parameters`."""
    options = {"device_id": str(device)}
    for key, names in CUDA_OPTIONS.items():
        if key in parameters:
            value = parameters[key]
            options[key] = names[value] if names else value
    return CUDA, options
