"""A Python-based Triton backend with the name and the parameters of NVIDIA's C++ `openvino` backend.

It serves models with `backend: "openvino"` on a Triton without that backend, such as the one in the `nvidia-pytriton`
wheel. It supports these keys of `config.pbtxt`:

- `default_model_filename`; `max_batch_size` (requests that Triton passes together run as one batch; if only the batch
  size of a model is variable, each item of a batch runs separately, which is faster: see `fix_batch`);
- `parameters`: `PERFORMANCE_HINT` (`LATENCY`, the default, or `THROUGHPUT`), `INFERENCE_NUM_THREADS`,
  `COMPILATION_NUM_THREADS`, `NUM_STREAMS`, `HINT_BF16` (`YES`: matrix products and convolutions in bfloat16; otherwise
  in float32, even if the processor supports both).

A precision or device that is not available is an error at load, never a silent change.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time
from pathlib import Path
from threading import Lock, Thread
from typing import Any

# oneDNN's own cache of compiled primitives, which would keep those that OpenVINO's drops. Read as the library loads.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0")

import numpy as np
import numpy.typing as npt
import openvino as ov
import triton_python_backend_utils as pb_utils  # exists inside Triton only

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))  # Triton knows the backend's own folder only
from graph_model import GraphModel, Signature, parameter

Array = npt.NDArray[Any]

DEVICE = "CPU"
CACHED_PRIMITIVES = 96
"""Compiled primitives that OpenVINO keeps, about ten for each combination of numbers of prompts and points. With its
default of 5,000, MobileSAM's decoder grows by 0.7 GB in 100 requests of different shapes; with 96, by 0.04 GB."""
PASSED_THROUGH = ("INFERENCE_NUM_THREADS", "COMPILATION_NUM_THREADS", "NUM_STREAMS")
LARGE_RUN_FACTOR, MEMORY_KEPT_S = 8, 15.0
"""Memory is released if no run in this time had an input this many times as large as the smallest seen."""
TRITON_TYPES = {
    "f32": "TYPE_FP32",
    "f16": "TYPE_FP16",
    "bf16": "TYPE_BF16",
    "f64": "TYPE_FP64",
    "u8": "TYPE_UINT8",
    "i8": "TYPE_INT8",
    "i32": "TYPE_INT32",
    "i64": "TYPE_INT64",
    "boolean": "TYPE_BOOL",
    "string": "TYPE_STRING",
}


class TritonPythonModel(GraphModel):
    """One instance of a model run by OpenVINO."""

    def load(self, path: Path, config: dict[str, Any], args: dict[str, str]) -> tuple[Signature, Signature]:
        """Load a graph: ONNX or OpenVINO's own format."""
        if args["model_instance_kind"] != "CPU":
            raise pb_utils.TritonModelException(f"openvino runs on KIND_CPU, not on {args['model_instance_kind']}")
        core = ov.Core()
        model = core.read_model(path)
        self.one_by_one = fix_batch(model, config)
        self.compiled = core.compile_model(model, DEVICE, properties(config, core))
        # The outputs are in the request's memory: each run of one `execute` needs its own request.
        self.requests = [self.compiled.create_infer_request()]
        self.used = 0
        self.smallest: dict[str, int] = {}
        self.last, self.last_large = 0.0, math.inf
        self.lock = Lock()
        Thread(target=self._watch, daemon=True).start()
        # From the uncompiled model: compiled tensors have additional names.
        return signature(model.inputs), signature(model.outputs)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests."""
        with self.lock:
            self.used = 0
            responses = super().execute(requests)
            self.last = time.monotonic()
        return responses

    def run(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        """Run the model, item by item if its batch size is fixed, and return the named outputs."""
        items = len(feed[self.inputs[0]])
        if not self.one_by_one or items == 1:
            return self._infer(feed, names)
        feeds = [{name: array[item : item + 1] for name, array in feed.items()} for item in range(items)]
        parts = [self._infer(item, names) for item in feeds]
        return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]

    def _groups(self, feeds: list[dict[str, Array]]) -> list[list[int]]:
        return [[index] for index in range(len(feeds))] if self.one_by_one else super()._groups(feeds)

    def _infer(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        if self.used == len(self.requests):
            self.requests.append(self.compiled.create_infer_request())
        request = self.requests[self.used]
        self.used += 1
        if self.used == 1:  # the outputs of earlier runs are not used any more
            self._release_memory()
        self._note_large_run({name: array.size for name, array in feed.items()})
        answer = request.infer(feed, share_inputs=True, share_outputs=True)
        return [answer[name] for name in names]

    def _note_large_run(self, sizes: dict[str, int]) -> None:
        """Remember the time of a large run; `sizes` are the numbers of values in each input."""
        self.smallest = {name: min(size, self.smallest.get(name, size)) for name, size in sizes.items()}
        if any(size >= LARGE_RUN_FACTOR * self.smallest[name] for name, size in sizes.items()):
            self.last_large = time.monotonic()

    def _release_memory(self) -> None:
        """Release the memory of large runs if there has been none for `MEMORY_KEPT_S`.

        OpenVINO keeps the memory of its largest run; for MobileSAM's decoder with 500 points that exceeds the model's.
        The run after a release takes longer.
        """
        if time.monotonic() - self.last_large > MEMORY_KEPT_S:
            self.compiled.release_memory()
            self.last_large = math.inf
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
            if trim:
                trim(0)

    def _watch(self) -> None:
        """Release memory when there are no runs at all."""
        while True:
            time.sleep(MEMORY_KEPT_S / 3)
            with self.lock:
                if time.monotonic() - self.last > MEMORY_KEPT_S / 3:  # Triton has copied the outputs
                    self._release_memory()


def fix_batch(model: ov.Model, config: dict[str, Any]) -> bool:
    """Set the batch size to 1 if it is the only variable size, and return whether it is.

    With all shapes known OpenVINO avoids reordering memory: MobileSAM's encoder takes 0.87 of the time per image, and a
    run of two images is not faster than two runs.
    """
    if not int(config.get("max_batch_size", 0)):
        return False
    shapes = {port.get_any_name(): port.get_partial_shape() for port in model.inputs}
    if any(axis.is_dynamic for shape in shapes.values() for axis in list(shape)[1:]):
        return False
    model.reshape({name: [1, *list(shape)[1:]] for name, shape in shapes.items()})
    return True


def properties(config: dict[str, Any], core: ov.Core) -> dict[str, str]:
    """Return OpenVINO's properties for the model's `parameters`.

    Raises:
        TritonModelException: the model asks for bfloat16, which this processor lacks.
    """
    bf16 = parameter(config, "HINT_BF16") == "YES"
    if bf16 and "BF16" not in core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES"):
        raise pb_utils.TritonModelException("config asks for HINT_BF16, this processor has no bfloat16")
    given = {key: parameter(config, key) for key in PASSED_THROUGH}
    return {
        "PERFORMANCE_HINT": parameter(config, "PERFORMANCE_HINT") or "LATENCY",
        "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
        "CPU_RUNTIME_CACHE_CAPACITY": str(CACHED_PRIMITIVES),
        # Several processes share the cores: a pinned thread would wait for its core while another one is free.
        "ENABLE_CPU_PINNING": "NO",
        **{key: value for key, value in given.items() if value is not None},
    }


def signature(ports: list[Any]) -> Signature:
    """Return type and number of dimensions of a model's inputs or outputs, by name."""
    return {
        port.get_any_name(): (
            TRITON_TYPES.get(port.get_element_type().get_type_name(), port.get_element_type().get_type_name()),
            port.get_partial_shape().rank.get_length(),
        )
        for port in ports
    }
