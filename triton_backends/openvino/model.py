"""A Python-based Triton backend with the name and the parameters of NVIDIA's C++ `openvino`
backend.

It serves models with `backend: "openvino"` on a Triton without that backend, such as the one in the
`nvidia-pytriton` wheel. It supports these keys of `config.pbtxt`:

- `default_model_filename`; `max_batch_size` (requests that Triton passes together run as one batch;
  if only the batch size of a model is variable, each item of a batch runs separately, which is
  faster: see `fix_batch`);
- the `parameters` of `openvino_engine`.

A precision or device that is not available is an error at load, never a silent change.
"""

import sys
from pathlib import Path
from typing import Any

# Triton knows the backend's own folder only.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from graph_model import GraphModel, parameters_of
from openvino_engine import Engine, libc, read_signatures

M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES = -3, 2 * 2**20
"""Parameter of mallopt(3), and its value: blocks from this size on return to the kernel when
they are freed. In the heap one small block in use above them would keep them."""


class TritonPythonModel(GraphModel):
    """One instance of a model run by OpenVINO."""

    read = staticmethod(read_signatures)

    def load(self, path: Path, config: dict[str, Any], args: dict[str, str]) -> Engine:
        """Load a graph: ONNX or OpenVINO's own format."""
        if args["model_instance_kind"] != "CPU":
            raise ValueError(f"openvino runs on KIND_CPU, not on {args['model_instance_kind']}")
        libc("mallopt", M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
        batched = int(config.get("max_batch_size", 0)) > 0
        return Engine(path, parameters_of(config), batched=batched)
