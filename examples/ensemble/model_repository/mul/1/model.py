"""Second step of the ensemble: product of two inputs, up to a limit set in config.pbtxt."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only


class TritonPythonModel:
    """Model of Triton's Python backend, which calls these methods."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the limit.

        Raises:
            TritonModelException: the limit is not a positive number. Triton logs it and does not load the model.
        """
        config = json.loads(args["model_config"])
        text = config["parameters"]["largest"]["string_value"]
        try:
            self.largest = float(text)
        except ValueError:
            self.largest = math.nan
        if not self.largest > 0:
            raise pb_utils.TritonModelException(f"largest: expected a positive number, got {text!r}")
        self.name = config["name"]
        self.answered = self.rejected = 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An invalid request does not affect the others."""
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        """Print statistics; called once, when the model is unloaded or Triton shuts down."""
        print(f"{self.name}: answered {self.answered}, rejected {self.rejected}", flush=True)

    def _answer(self, request: Any) -> Any:
        """Return the response to one request with (N, 4) float32 inputs."""
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        with np.errstate(over="ignore", invalid="ignore"):
            product = first * second
        # Not `>`, which is false for NaN.
        for row, column in np.argwhere(~(np.abs(product) <= self.largest))[:1]:
            self.rejected += 1
            got = f"{first[row, column]:g} * {second[row, column]:g}"
            message = f"OUTPUT[{column}]: expected a product of at most {self.largest:g} in magnitude, got {got}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        self.answered += 1
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", product)])
