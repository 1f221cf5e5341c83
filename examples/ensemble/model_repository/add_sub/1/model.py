"""The ensemble's first step: sum and difference of two inputs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only

SIGNS = {"SUM": "+", "DIFFERENCE": "-"}
"""The outputs, and how a message writes what they are of."""


class TritonPythonModel:
    """A model of Triton's Python backend; the methods are called by Triton, by these names."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Complete what config.pbtxt leaves out; called before `initialize`, in a process of its own."""
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
        self.answered = self.refused = 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer what waits: a response for each request, in their order. A bad one does not touch the others."""
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        """Say what was done; called once, when the model is unloaded or Triton ends."""
        print(f"{self.name}: answered {self.answered}, refused {self.refused}", flush=True)

    def _answer(self, request: Any) -> Any:
        """The response to one request; its inputs are (N, 4) float32, N what the caller sent, most often 1."""
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        with np.errstate(over="ignore", invalid="ignore"):
            results = {"SUM": first + second, "DIFFERENCE": first - second}
        for name, result in results.items():
            for row, column in np.argwhere(~np.isfinite(result))[:1]:
                self.refused += 1
                got = f"{first[row, column]:g} {SIGNS[name]} {second[row, column]:g}"
                message = f"{name}[{column}]: expected a number that FP32 can hold, got {got}"
                # INVALID_ARG blames the caller: HTTP 400. Without a code it would be the model's failure: 500.
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        self.answered += 1
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, result.astype(self.types[name])) for name, result in results.items()]
        )
