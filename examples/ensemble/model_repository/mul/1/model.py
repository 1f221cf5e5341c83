"""Second step of the ensemble: product of two inputs, up to a limit set in config.pbtxt."""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only


class TritonPythonModel:
    """Model of Triton's Python backend, which calls these methods."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the limit. Triton logs an exception and does not load the model."""
        self.largest = float(
            json.loads(args["model_config"])["parameters"]["largest"]["string_value"]
        )
        self.executions = 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An error of one does not affect the others."""
        self.executions += 1
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        """Print statistics; called once, when the model is unloaded or Triton shuts down."""
        print(f"mul: {self.executions} executions", flush=True)

    def _answer(self, request: Any) -> Any:
        """Return the response to one request with (4,) float32 inputs."""
        first, second = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            for name in ("INPUT0", "INPUT1")
        )
        product = first * second
        if not (np.abs(product) <= self.largest).all():  # not `>`, which is false for NaN
            message = f"OUTPUT: expected products of at most {self.largest:g} in magnitude"
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
            )
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", product)])
