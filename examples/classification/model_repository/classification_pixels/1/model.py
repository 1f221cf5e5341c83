"""First step of the ensemble: image files to pixels."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from classification_crop import CROP, InvalidInput, load_crop


class TritonPythonModel:
    """Model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters.

        Raises:
            TritonModelException: a parameter is invalid. Triton logs it and does not load the model.
        """
        parameters = json.loads(args["model_config"])["parameters"]
        for key, minimum in (("resize_size", CROP), ("max_image_pixels", 1)):
            text = parameters[key]["string_value"]
            if not text.isdecimal() or int(text) < minimum:
                raise pb_utils.TritonModelException(f"{key}: expected an integer of at least {minimum}, got {text!r}")
        self.resize_size, self.max_pixels = (
            int(parameters[key]["string_value"]) for key in ("resize_size", "max_image_pixels")
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An invalid request does not affect the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the response to one request with (N, 1) files; N is mostly 1."""
        files = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        try:
            crops = [load_crop(file, self.resize_size, self.max_pixels) for file in files[:, 0]]
        except InvalidInput as error:
            # INVALID_ARG is the caller's error: HTTP 400. Without a code it would be a 500.
            invalid = pb_utils.TritonError(f"image: {error}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=invalid)
        return pb_utils.InferenceResponse([pb_utils.Tensor("pixels", np.stack(crops))])
