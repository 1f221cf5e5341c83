"""Call the streaming model with a decoupled BLS request and return all its pieces at once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only

STREAM, OUTPUT = "text_generation_stream", "text_output"
REQUEST_ERROR = re.compile(r"\w+: expected .+, got .+", re.DOTALL)
"""Messages of the streaming model about invalid requests."""


class TritonPythonModel:
    """Model that waits for one text at a time."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request. A failure does not affect the others."""
        return [self._full_text(request) for request in requests]

    def _full_text(self, request: Any) -> Any:
        """Return the response to one request."""
        stream_request = pb_utils.InferenceRequest(
            model_name=STREAM, requested_output_names=[OUTPUT], inputs=list(request.inputs())
        )
        pieces = []
        for response in stream_request.exec(decoupled=True):
            if response.has_error():
                return pb_utils.InferenceResponse([], _with_code(response.error()))
            if response.output_tensors():  # the last response of a stream has none
                pieces.append(pb_utils.get_output_tensor_by_name(response, OUTPUT).as_numpy()[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor(OUTPUT, np.array([b"".join(pieces)], np.object_))])


def _with_code(error: Any) -> Any:
    """Restore the code of the streaming model's error: BLS turns every error into an internal one."""
    callers_fault = REQUEST_ERROR.fullmatch(error.message())
    return pb_utils.TritonError(error.message(), error.INVALID_ARG if callers_fault else error.INTERNAL)
