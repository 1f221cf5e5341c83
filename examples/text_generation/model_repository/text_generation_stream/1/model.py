"""Sends a language model's text piece by piece, for several requests at once."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from text_generation_language import Language
from text_generation_request import Asked, Refused
from text_generation_settings import Settings, Unusable

INPUTS = ("text_input", "max_new_tokens", "temperature", "seed")
ENDS = ("complete", "left", "refused", "failed")
"""Of a text, as counted: `left` is one whose caller has gone."""
AT_ONCE = 4
"""Texts that are written at once; further requests wait. Each adds its own keys and values to the weights in memory."""


class TritonPythonModel:
    """The one process that holds the weights."""

    def initialize(self, _: dict[str, str]) -> None:
        """Load the model.

        Raises:
            TritonModelException: it cannot be loaded as the environment asks.
        """
        try:
            self.language = Language(Settings.of(os.environ))
        except Unusable as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self.family = pb_utils.MetricFamily(
            "text_generation_texts_total", "Texts, by how they ended", pb_utils.MetricFamily.COUNTER
        )
        self.ends = {end: self.family.Metric({"end": end}) for end in ENDS}
        self.threads = ThreadPoolExecutor(AT_ONCE)
        self.ending = threading.Event()

    def execute(self, requests: list[Any]) -> None:
        """Have each request answered by a thread, and return: Triton has the next one then."""
        for request in requests:
            given = [pb_utils.get_input_tensor_by_name(request, name) for name in INPUTS]
            values = {name: tensor.as_numpy() for name, tensor in zip(INPUTS, given, strict=True) if tensor is not None}
            self.threads.submit(self._answer, values, request.get_response_sender())

    def _answer(self, values: dict[str, Any], sender: Any) -> None:
        """Send the pieces of a text, until its end or until nobody waits for it."""

        def send(piece: str) -> None:
            text = pb_utils.Tensor("text_output", np.array([piece.encode()], np.object_))
            sender.send(pb_utils.InferenceResponse([text]))

        def stop() -> bool:
            return self.ending.is_set() or bool(sender.is_cancelled())

        end, error = "complete", None
        try:
            self.language.write(Asked.of(values), send, stop)
            if stop():
                end = "left"
        except Refused as refused:
            end, error = "refused", pb_utils.TritonError(str(refused), pb_utils.TritonError.INVALID_ARG)
        except Exception as failure:
            pb_utils.Logger.log_error(f"a text could not be written: {failure!r}")
            end, error = "failed", pb_utils.TritonError("the text could not be written")
        self.ends[end].increment(1)
        if error:
            sender.send(pb_utils.InferenceResponse([], error))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self) -> None:
        """End what is being written."""
        self.ending.set()
        self.threads.shutdown()
