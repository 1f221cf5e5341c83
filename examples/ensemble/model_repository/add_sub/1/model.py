"""First step of the ensemble: sum and difference of two inputs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only

SIGNS = {"SUM": "+", "DIFFERENCE": "-"}
"""Outputs and their operators, for error messages."""


class TritonPythonModel:
    """Model of Triton's Python backend, which calls these methods."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Add what config.pbtxt leaves out; called before `initialize`, in a separate process."""
        config.set_max_batch_size(8)
        config.set_dynamic_batching()
        for name in ("INPUT0", "INPUT1"):
            config.add_input({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        for name in SIGNS:
            config.add_output({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Read the completed configuration; called once, before the first request."""
        config = json.loads(args["model_config"])
        types = {output["name"]: pb_utils.triton_string_to_numpy(output["data_type"]) for output in config["output"]}
        self.name, self.types = config["name"], types
        self.answered = self.rejected = 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An invalid request does not affect the others."""
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        """Print statistics; called once, when the model is unloaded or Triton shuts down."""
        print(f"{self.name}: answered {self.answered}, rejected {self.rejected}", flush=True)

    def _answer(self, request: Any) -> Any:
        """Return the response to one request with (N, 4) float32 inputs; N is chosen by the caller, mostly 1."""
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        with np.errstate(over="ignore", invalid="ignore"):
            results = {"SUM": first + second, "DIFFERENCE": first - second}
        for name, result in results.items():
            for row, column in np.argwhere(~np.isfinite(result))[:1]:
                self.rejected += 1
                got = f"{first[row, column]:g} {SIGNS[name]} {second[row, column]:g}"
                message = f"{name}[{column}]: expected a finite FP32 number, got {got}"
                # INVALID_ARG is the caller's error: HTTP 400. Without a code it would be a 500.
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        self.answered += 1
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, result.astype(self.types[name])) for name, result in results.items()]
        )
