"""Asks the model that streams (a decoupled BLS request), and answers with all its pieces at once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only

STREAM, OUTPUT = "text_generation_stream", "text_output"
REFUSAL = re.compile(r"\w+: expected .+, got .+", re.DOTALL)
"""What the other model says to a caller who can mend the request."""


class TritonPythonModel:
    """One process; it waits for one text at a time."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request; a failure of one does not touch the others."""
        return [self._whole(request) for request in requests]

    def _whole(self, request: Any) -> Any:
        """The response to one request, or why there is none."""
        asked = pb_utils.InferenceRequest(
            model_name=STREAM, requested_output_names=[OUTPUT], inputs=list(request.inputs())
        )
        pieces = []
        for response in asked.exec(decoupled=True):
            if response.has_error():
                return pb_utils.InferenceResponse([], _with_code(response.error()))
            if response.output_tensors():  # the last response of a stream has none
                pieces.append(pb_utils.get_output_tensor_by_name(response, OUTPUT).as_numpy()[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor(OUTPUT, np.array([b"".join(pieces)], np.object_))])


def _with_code(error: Any) -> Any:
    """An error of the other model, with the code that it had there: BLS makes an internal error of every one."""
    mendable = REFUSAL.fullmatch(error.message())
    return pb_utils.TritonError(error.message(), error.INVALID_ARG if mendable else error.INTERNAL)
