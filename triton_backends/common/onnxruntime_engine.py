"""A graph that ONNX Runtime runs: in the backend `onnxruntime`, or in the process that asks for its
answers.

These `parameters` of a model are options of its sessions: `intra_op_thread_count`,
`inter_op_thread_count`, `execution_mode` (0 sequential, 1 parallel).
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

Array = npt.NDArray[Any]
Signature = dict[str, tuple[str, list[int]]]
Provider = tuple[str, dict[str, str]]
TensorsOnDevice = dict[str, ort.OrtValue]

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


MAX_KEPT_BYTES = 128 * 2**20
"""Memory of a GPU for tensors that are kept there: 64 embeddings of MobileSAM's."""


class KeptTensors:
    """Tensors that stay on a device for further runs: those used last, within a size.

    Usage: `engine.run({**kept("photo", embedding), **prompts}, names)`.
    """

    def __init__(self, device: str, device_id: int, max_bytes: int = MAX_KEPT_BYTES) -> None:
        """Keep nothing yet.

        Args:
            device: ONNX Runtime's name of the kind of device, `cuda` or `cpu`.
            device_id: its number.
            max_bytes: size of all tensors. The newest ones are kept even if they are larger.
        """
        self._device, self._device_id, self._max_bytes = device, device_id, max_bytes
        self._kept: OrderedDict[str, TensorsOnDevice] = OrderedDict()
        self._nbytes = 0

    def __call__(self, key: str, tensors: Mapping[str, Array]) -> TensorsOnDevice:
        """Return tensors on the device, copied there unless they are kept under this key."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        on_device = {
            name: ort.OrtValue.ortvalue_from_numpy(
                np.ascontiguousarray(tensor), self._device, self._device_id
            )
            for name, tensor in tensors.items()
        }
        self._kept[key] = on_device
        self._nbytes += _nbytes(on_device)
        while self._nbytes > self._max_bytes and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._nbytes -= _nbytes(oldest)
        return on_device


def _nbytes(tensors: TensorsOnDevice) -> int:
    return sum(tensor.tensor_size_in_bytes() for tensor in tensors.values())


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

        self.keep: KeptTensors | None = None
        """Keeps inputs on the GPU, if there is one."""
        if CUDA in dict(providers):
            self.keep = KeptTensors("cuda", int(dict(providers)[CUDA]["device_id"]))

    def run(self, feed: Mapping[str, Array | ort.OrtValue], names: list[str]) -> list[Array]:
        """Return the named outputs."""
        if not any(isinstance(value, ort.OrtValue) for value in feed.values()):
            answers: list[Array] = self.session.run(names, feed)
            return answers
        binding = self.session.io_binding()
        for name, value in feed.items():
            if isinstance(value, ort.OrtValue):
                binding.bind_ortvalue_input(name, value)
            else:
                binding.bind_cpu_input(name, np.ascontiguousarray(value))
        for name in names:
            binding.bind_output(name)  # in the host's memory
        self.session.run_with_iobinding(binding)
        copied: list[Array] = binding.copy_outputs_to_cpu()
        return copied


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
