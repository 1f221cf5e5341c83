"""Stream the text of a language model for several concurrent requests."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from text_generation_language import Language
from text_generation_request import GenerationRequest, RequestError
from text_generation_settings import Settings, SettingsError

INPUTS = ("text_input", "max_new_tokens", "temperature", "seed")
ENDS = ("complete", "left", "refused", "failed")
"""Outcomes of a text in the metric; `left`: the caller closed the connection."""
MAX_CONCURRENT_TEXTS = 4
"""Further requests wait. Each concurrent text needs memory for its key-value cache."""


class TritonPythonModel:
    """Model that holds the weights, in a single process."""

    def initialize(self, _: dict[str, str]) -> None:
        """Load the model.

        Raises:
            TritonModelException: the model cannot be loaded.
        """
        try:
            self.language = Language(Settings.of(os.environ))
        except SettingsError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        self.family = pb_utils.MetricFamily(
            "text_generation_texts_total", "Generated texts by outcome", pb_utils.MetricFamily.COUNTER
        )
        self.ends = {end: self.family.Metric({"end": end}) for end in ENDS}
        self.threads = ThreadPoolExecutor(MAX_CONCURRENT_TEXTS)
        self.shutting_down = threading.Event()

    def execute(self, requests: list[Any]) -> None:
        """Hand each request to a thread and return, so that Triton can pass the next ones."""
        for request in requests:
            tensors = [pb_utils.get_input_tensor_by_name(request, name) for name in INPUTS]
            values = {
                name: tensor.as_numpy() for name, tensor in zip(INPUTS, tensors, strict=True) if tensor is not None
            }
            self.threads.submit(self._answer, values, request.get_response_sender())

    def _answer(self, values: dict[str, Any], sender: Any) -> None:
        """Send the pieces of a text until it ends or the request is cancelled."""

        def send(piece: str) -> None:
            text = pb_utils.Tensor("text_output", np.array([piece.encode()], np.object_))
            sender.send(pb_utils.InferenceResponse([text]))

        def stop() -> bool:
            return self.shutting_down.is_set() or bool(sender.is_cancelled())

        end, error = "complete", None
        try:
            self.language.write(GenerationRequest.of(values), send, stop)
            if stop():
                end = "left"
        except RequestError as invalid:
            end, error = "refused", pb_utils.TritonError(str(invalid), pb_utils.TritonError.INVALID_ARG)
        except Exception as failure:
            pb_utils.Logger.log_error(f"text generation failed: {failure!r}")
            end, error = "failed", pb_utils.TritonError("text generation failed")
        self.ends[end].increment(1)
        if error:
            sender.send(pb_utils.InferenceResponse([], error))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self) -> None:
        """Stop all texts."""
        self.shutting_down.set()
        self.threads.shutdown()
