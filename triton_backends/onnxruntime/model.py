"""A Python-based Triton backend with the name and the config keys of NVIDIA's C++ `onnxruntime` backend.

It serves models with `backend: "onnxruntime"` on a Triton without that backend, such as the one in the
`nvidia-pytriton` wheel. It supports these keys of `config.pbtxt`:

- `default_model_filename`; `max_batch_size` (requests that Triton passes together run as one batch);
- `instance_group` kind and device;
- `parameters`: `intra_op_thread_count`, `inter_op_thread_count`, `execution_mode` (0 sequential, 1 parallel),
  `cudnn_conv_algo_search` (0 exhaustive, 1 heuristic, 2 default), `gpu_mem_limit` (bytes), `arena_extend_strategy`
  (0 next power of two, 1 same as requested);
- `optimization.execution_accelerators`: `gpu_execution_accelerator` `tensorrt` with `precision_mode` and
  `max_workspace_size_bytes`; `cpu_execution_accelerator` `openvino`.

A device or engine that is not available is an error at load, never a silent change.
"""

import sys
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnxruntime as ort
import triton_python_backend_utils as pb_utils  # exists inside Triton only

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))  # Triton knows the backend's own folder only
from graph_model import GraphModel, Signature, parameter

Array = npt.NDArray[Any]

ERROR = 3
"""ONNX Runtime's log severity."""
CUDA_OPTIONS: dict[str, dict[str, str]] = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "gpu_mem_limit": {},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
}
"""Parameters of the config, which are also ONNX Runtime's options, and its names for their values if it has any."""
TRITON_TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16",
    "tensor(double)": "TYPE_FP64",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(int8)": "TYPE_INT8",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(bool)": "TYPE_BOOL",
    "tensor(string)": "TYPE_STRING",
}


class TritonPythonModel(GraphModel):
    """One instance of an ONNX model."""

    @classmethod
    def read(cls, path: Path) -> tuple[Signature, Signature]:
        """Return the inputs and outputs of an ONNX file."""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return signature(session.get_inputs()), signature(session.get_outputs())

    def load(self, path: Path, config: dict[str, Any], args: dict[str, str]) -> tuple[Signature, Signature]:
        """Load an ONNX file."""
        options = session_options(config)
        providers = execution_providers(config, args["model_instance_kind"], int(args["model_instance_device_id"]))
        # Otherwise ONNX Runtime would replace a provider without its libraries by the CPU, with a page of messages.
        ort.set_default_logger_severity(ERROR)
        self.session = ort.InferenceSession(str(path), options, providers=providers, enable_fallback=0)
        if missing := [name for name, _ in providers if name not in self.session.get_providers()]:
            raise pb_utils.TritonModelException(
                f"onnxruntime {ort.__version__} cannot load {missing[0]}: its message above names the missing library"
            )
        return signature(self.session.get_inputs()), signature(self.session.get_outputs())

    def run(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        """Run the session and return the named outputs."""
        outputs: list[Array] = self.session.run(names, feed)
        return outputs


def session_options(config: dict[str, Any]) -> ort.SessionOptions:
    """Return session options with the threads and execution mode of the model's `parameters`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(parameter(config, "intra_op_thread_count") or 0)
    options.inter_op_num_threads = int(parameter(config, "inter_op_thread_count") or 0)
    if parameter(config, "execution_mode") == "1":
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.log_severity_level = ERROR
    # Waiting threads spin for 20 us, which is enough on an idle machine. Longer spinning makes a run three times slower
    # when others use the cores, as encoder, decoder and orchestrator do here.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def execution_providers(config: dict[str, Any], kind: str, device: int) -> list[tuple[str, dict[str, str]]]:
    """Return ONNX Runtime's providers for the instance in order of preference.

    Raises:
        TritonModelException: the config asks for a provider that this ONNX Runtime lacks, or for an unknown one.
    """
    if kind == "GPU":
        providers = [tensorrt_provider(entry, device) for entry in accelerators(config, "gpu", "tensorrt")]
        providers.append(cuda_provider(config, device))
    else:
        providers = [("OpenVINOExecutionProvider", {}) for _ in accelerators(config, "cpu", "openvino")]
    available = ort.get_available_providers()
    for name, _ in providers:
        if name not in available:
            raise pb_utils.TritonModelException(
                f"config asks for {name} ({kind} instance), this onnxruntime {ort.__version__} has {available}"
            )
    return [*providers, ("CPUExecutionProvider", {})]


def accelerators(config: dict[str, Any], kind: str, expected: str) -> list[dict[str, Any]]:
    """Return the entries of `cpu_execution_accelerator` or `gpu_execution_accelerator`; only one name is known."""
    entries = config.get("optimization", {}).get("execution_accelerators", {}).get(f"{kind}_execution_accelerator", [])
    for name in (entry["name"] for entry in entries):
        if name != expected:
            raise pb_utils.TritonModelException(f"unknown execution accelerator {name!r}, expected {expected!r}")
    return list(entries)


def tensorrt_provider(accelerator: dict[str, Any], device: int) -> tuple[str, dict[str, str]]:
    """Return the provider of a `gpu_execution_accelerator` entry."""
    settings = accelerator.get("parameters", {})
    options = {"device_id": str(device)}
    if settings.get("precision_mode") == "FP16":
        options["trt_fp16_enable"] = "1"
    if "max_workspace_size_bytes" in settings:
        options["trt_max_workspace_size"] = settings["max_workspace_size_bytes"]
    return "TensorrtExecutionProvider", options


def cuda_provider(config: dict[str, Any], device: int) -> tuple[str, dict[str, str]]:
    """Return the CUDA provider with the model's `parameters`."""
    options = {"device_id": str(device)}
    for key, names in CUDA_OPTIONS.items():
        if (value := parameter(config, key)) is not None:
            options[key] = names[value] if names else value
    return "CUDAExecutionProvider", options


def signature(nodes: list[Any]) -> Signature:
    """Return type and shape of a model's inputs or outputs, by name."""
    return {
        node.name: (
            TRITON_TYPES.get(node.type, node.type),
            [size if isinstance(size, int) else -1 for size in node.shape],
        )
        for node in nodes
    }
