"""A Python-based Triton backend with the name and the config keys of NVIDIA's C++ `onnxruntime` backend.

It serves models that say `backend: "onnxruntime"` where the Triton at hand has no such backend (the one in the
`nvidia-pytriton` wheel has none). The keys honoured, in `config.pbtxt`:

- `default_model_filename`; `max_batch_size` (requests that Triton hands over together run as one batch);
- `instance_group` kind and device;
- `parameters`: `intra_op_thread_count`, `inter_op_thread_count`, `execution_mode` (0 sequential, 1 parallel),
  `cudnn_conv_algo_search` (0 exhaustive, 1 heuristic, 2 default), `gpu_mem_limit` (bytes), `arena_extend_strategy`
  (0 next power of two, 1 same as requested);
- `optimization.execution_accelerators`: `gpu_execution_accelerator` `tensorrt` with `precision_mode` and
  `max_workspace_size_bytes`; `cpu_execution_accelerator` `openvino`.

What it cannot honour is an error at load, never a silent change of device or engine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import triton_python_backend_utils as pb_utils  # exists inside Triton only

Array = npt.NDArray[Any]

CONV_SEARCH = {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"}
ARENA_EXTEND = {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"}
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


class TritonPythonModel:
    """One instance of an ONNX model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model named by `args`; Triton reports what is raised here as the model's load error."""
        config = json.loads(args["model_config"])
        filename = config.get("default_model_filename") or "model.onnx"
        path = Path(args["model_repository"]) / args["model_version"] / filename
        if not path.is_file():
            raise pb_utils.TritonModelException(f"{path}: no such file; `make weights` writes it")
        options = session_options(config)
        providers = execution_providers(config, args["model_instance_kind"], int(args["model_instance_device_id"]))
        try:
            self.session = ort.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # onnxruntime raises its own types, RuntimeError and ValueError alike
            raise pb_utils.TritonModelException(f"{path}: {first_line(error)}") from None
        check_signature(config, self.session, path)
        self.batched = int(config.get("max_batch_size", 0)) > 0
        self.inputs = [node.name for node in self.session.get_inputs()]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests, those of equal shapes in one run; one that fails does not touch the others."""
        feeds = [
            {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
            for request in requests
        ]
        responses: list[Any] = [None] * len(requests)
        for group in self._groups(feeds):
            names = sorted({name for index in group for name in requests[index].requested_output_names()})
            try:
                answers = self._run([feeds[index] for index in group], names)
            except Exception as error:
                failure = pb_utils.InferenceResponse(error=pb_utils.TritonError(first_line(error)))
                for index in group:
                    responses[index] = failure
                continue
            for index, answer in zip(group, answers, strict=True):
                wanted = requests[index].requested_output_names()
                tensors = [pb_utils.Tensor(name, answer[name]) for name in names if name in wanted]
                responses[index] = pb_utils.InferenceResponse(output_tensors=tensors)
        return responses

    def _groups(self, feeds: list[dict[str, Array]]) -> list[list[int]]:
        """Indices of the requests that can run as one batch."""
        if not self.batched:
            return [[index] for index in range(len(feeds))]
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for index, feed in enumerate(feeds):
            groups.setdefault(tuple(feed[name].shape[1:] for name in self.inputs), []).append(index)
        return list(groups.values())

    def _run(self, feeds: list[dict[str, Array]], names: list[str]) -> list[dict[str, Array]]:
        if len(feeds) == 1:
            return [dict(zip(names, self.session.run(names, feeds[0]), strict=True))]
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in self.inputs}
        ends = np.cumsum([feed[self.inputs[0]].shape[0] for feed in feeds])[:-1]
        parts = [np.split(output, ends) for output in self.session.run(names, joined)]
        return [dict(zip(names, answer, strict=True)) for answer in zip(*parts, strict=True)]


def first_line(error: Exception) -> str:
    """The error's message up to the first line break."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def parameter(config: dict[str, Any], key: str) -> str | None:
    """The `parameters` entry of that key, or None."""
    entry = config.get("parameters", {}).get(key)
    return entry["string_value"] if entry else None


def session_options(config: dict[str, Any]) -> ort.SessionOptions:
    """Threads and execution mode of the model's `parameters`."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(parameter(config, "intra_op_thread_count") or 0)
    options.inter_op_num_threads = int(parameter(config, "inter_op_thread_count") or 0)
    if parameter(config, "execution_mode") == "1":
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.log_severity_level = 3
    # Threads that wait for each other spin for 20 us, which is enough on an idle machine. Left to spin for long they
    # make a run three times slower where others use the cores too, as encoder, decoder and orchestrator do here.
    options.add_session_config_entry("session.intra_op.spin_duration_us", "20")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def execution_providers(config: dict[str, Any], kind: str, device: int) -> list[tuple[str, dict[str, str]]]:
    """ONNX Runtime's providers for the instance, most wanted first.

    Raises:
        TritonModelException: this ONNX Runtime lacks one that the config asks for.
    """
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    if kind == "GPU":
        wanted = accelerators.get("gpu_execution_accelerator", [])
        providers = [tensorrt_provider(accelerator, device) for accelerator in wanted]
        providers.append(cuda_provider(config, device))
    else:
        wanted = accelerators.get("cpu_execution_accelerator", [])
        providers = [openvino_provider(accelerator) for accelerator in wanted]
    available = ort.get_available_providers()
    for name, _ in providers:
        if name not in available:
            raise pb_utils.TritonModelException(
                f"config asks for {name} ({kind} instance), this onnxruntime {ort.__version__} has {available}"
            )
    return [*providers, ("CPUExecutionProvider", {})]


def tensorrt_provider(accelerator: dict[str, Any], device: int) -> tuple[str, dict[str, str]]:
    """The provider of a `gpu_execution_accelerator` entry."""
    expect_name(accelerator, "tensorrt")
    settings = accelerator.get("parameters", {})
    options = {"device_id": str(device)}
    if settings.get("precision_mode") == "FP16":
        options["trt_fp16_enable"] = "1"
    if "max_workspace_size_bytes" in settings:
        options["trt_max_workspace_size"] = settings["max_workspace_size_bytes"]
    return "TensorrtExecutionProvider", options


def cuda_provider(config: dict[str, Any], device: int) -> tuple[str, dict[str, str]]:
    """The CUDA provider with the model's `parameters`."""
    options = {"device_id": str(device)}
    search, limit, arena = (
        parameter(config, key) for key in ("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy")
    )
    if search is not None:
        options["cudnn_conv_algo_search"] = CONV_SEARCH[search]
    if limit is not None:
        options["gpu_mem_limit"] = limit
    if arena is not None:
        options["arena_extend_strategy"] = ARENA_EXTEND[arena]
    return "CUDAExecutionProvider", options


def openvino_provider(accelerator: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """The provider of a `cpu_execution_accelerator` entry."""
    expect_name(accelerator, "openvino")
    return "OpenVINOExecutionProvider", {}


def expect_name(accelerator: dict[str, Any], name: str) -> None:
    """Refuse an accelerator this backend does not know.

    Raises:
        TritonModelException: it has another name.
    """
    if accelerator["name"] != name:
        raise pb_utils.TritonModelException(f"unknown execution accelerator {accelerator['name']!r}, expected {name!r}")


def check_signature(config: dict[str, Any], session: ort.InferenceSession, path: Path) -> None:
    """Hold config.pbtxt to the graph: the C++ backend does, and a mismatch is best found at load.

    Raises:
        TritonModelException: a tensor is missing on either side or differs in type or number of dimensions.
    """
    batch = 1 if int(config.get("max_batch_size", 0)) > 0 else 0
    for side, nodes in (("input", session.get_inputs()), ("output", session.get_outputs())):
        graph = {node.name: (TRITON_TYPES.get(node.type, node.type), len(node.shape)) for node in nodes}
        declared = {entry["name"]: (entry["data_type"], len(entry["dims"]) + batch) for entry in config[side]}
        if graph != declared:
            raise pb_utils.TritonModelException(f"{path}: {side}s are {graph}, config.pbtxt declares {declared}")
