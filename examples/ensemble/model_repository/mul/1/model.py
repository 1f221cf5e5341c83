"""The ensemble's second step: the product of two inputs, up to a limit that config.pbtxt sets."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only


class TritonPythonModel:
    """A model of Triton's Python backend; the methods are called by Triton, by these names."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the limit.

        Raises:
            TritonModelException: it is no positive number. The model is not loaded, and Triton's log says why.
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
        self.answered = self.refused = 0

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer what waits: a response for each request, in their order. A bad one does not touch the others."""
        return [self._answer(request) for request in requests]

    def finalize(self) -> None:
        """Say what was done; called once, when the model is unloaded or Triton ends."""
        print(f"{self.name}: answered {self.answered}, refused {self.refused}", flush=True)

    def _answer(self, request: Any) -> Any:
        """The response to one request; its inputs are (N, 4) float32."""
        first, second = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        with np.errstate(over="ignore", invalid="ignore"):
            product = first * second
        # Not `>`, which is false for what is no number at all.
        for row, column in np.argwhere(~(np.abs(product) <= self.largest))[:1]:
            self.refused += 1
            got = f"{first[row, column]:g} * {second[row, column]:g}"
            message = f"OUTPUT[{column}]: expected a product of at most {self.largest:g} in magnitude, got {got}"
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG))
        self.answered += 1
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", product)])
