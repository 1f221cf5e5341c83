"""Continue texts by calling the decoupled model, for callers that expect one response."""

from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only


class TritonPythonModel:
    """Model without weights: it calls another model in the same Triton (BLS)."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the text with its continuation."""
        (text,) = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
        call = pb_utils.InferenceRequest(
            model_name="text_generation_stream",
            requested_output_names=["text_output"],
            inputs=request.inputs(),
        )
        for response in call.exec(decoupled=True):
            if response.has_error():
                message = response.error().message()
                invalid = "invalid request: " in message
                code = (
                    pb_utils.TritonError.INVALID_ARG if invalid else pb_utils.TritonError.INTERNAL
                )
                return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
            for piece in response.output_tensors():  # none in the last response
                text += piece.as_numpy()[0]
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("text_output", np.array([text], np.object_))]
        )
