"""A Python-based Triton backend with the name and the config keys of NVIDIA's C++ `onnxruntime`
backend.

It serves models with `backend: "onnxruntime"` on a Triton without that backend, such as the one in
the `nvidia-pytriton` wheel. It supports these keys of `config.pbtxt`:

- `default_model_filename`; `max_batch_size` (requests that Triton passes together run as one
  batch);
- `instance_group` kind and device;
- the `parameters` of `onnxruntime_engine`, and `cudnn_conv_algo_search` (0 exhaustive, 1 heuristic,
  2 default), `gpu_mem_limit` (bytes), `arena_extend_strategy` (0 next power of two, 1 same as
  requested); `use_tf32` (0: products in float32, not TF32), which NVIDIA's ignores;
- `optimization.execution_accelerators`: `cpu_execution_accelerator` `openvino`.

A device or engine that is not available is an error at load, never a silent change.
"""

import sys
from pathlib import Path
from typing import Any

import onnxruntime as ort

# Triton knows the backend's own folder only.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from graph_model import GraphModel, parameters_of
from onnxruntime_engine import CPU, Engine, Provider, cuda_provider, read_signatures


class TritonPythonModel(GraphModel):
    """One instance of an ONNX model."""

    read = staticmethod(read_signatures)

    def load(self, path: Path, config: dict[str, Any], args: dict[str, str]) -> Engine:
        """Load an ONNX file."""
        providers = execution_providers(
            config, args["model_instance_kind"], int(args["model_instance_device_id"])
        )
        return Engine(path, parameters_of(config), providers)


def execution_providers(config: dict[str, Any], kind: str, device: int) -> list[Provider]:
    """Return ONNX Runtime's providers for the instance in order of preference.

    Raises:
        ValueError: the config asks for a provider that this ONNX Runtime lacks, or for an unknown
            one.
    """
    on_cpu: list[Provider] = [("OpenVINOExecutionProvider", {})] * accelerators(config)
    providers = [cuda_provider(parameters_of(config), device)] if kind == "GPU" else on_cpu
    available = ort.get_available_providers()
    for name, _ in providers:
        if name not in available:
            raise ValueError(
                f"config asks for {name} ({kind} instance), this onnxruntime {ort.__version__} has"
                f" {available}"
            )
    return [*providers, CPU]


def accelerators(config: dict[str, Any]) -> int:
    """Return the number of `execution_accelerators`, of which only OpenVINO on a CPU is known.

    Raises:
        ValueError: there is another one.
    """
    entries = config.get("optimization", {}).get("execution_accelerators", {})
    on_cpu, on_gpu = (
        entries.get(f"{device}_execution_accelerator", []) for device in ("cpu", "gpu")
    )
    for name in (entry["name"] for entry in (*on_cpu, *on_gpu)):
        if name != "openvino":
            raise ValueError(f"unknown execution accelerator {name!r}, expected 'openvino'")
    return len(on_cpu)
