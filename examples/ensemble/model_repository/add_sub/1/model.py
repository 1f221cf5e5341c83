"""First step of the ensemble: sum and difference of two inputs."""

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only


class TritonPythonModel:
    """Model of Triton's Python backend, which calls these methods."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Add what config.pbtxt leaves out; called before `initialize`, in a separate process."""
        config.set_max_batch_size(0)  # tensors have no batch dimension
        for name in ("INPUT0", "INPUT1"):
            config.add_input({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        for name in ("OUTPUT0", "OUTPUT1"):
            config.add_output({"name": name, "data_type": "TYPE_FP32", "dims": [4]})
        return config

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An error of one does not affect the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the response to one request: sum and difference of its (4,) float32 inputs."""
        first, second = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy()
            for name in ("INPUT0", "INPUT1")
        )
        outputs = {"OUTPUT0": first + second, "OUTPUT1": first - second}
        for name, values in outputs.items():
            if not np.isfinite(values).all():
                # INVALID_ARG is the caller's error: HTTP 400. Without a code it would be a 500.
                invalid = pb_utils.TritonError(
                    f"{name}: expected finite FP32 numbers", pb_utils.TritonError.INVALID_ARG
                )
                return pb_utils.InferenceResponse(error=invalid)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, values) for name, values in outputs.items()]
        )
