"""The ensemble's first step: image files to pixels."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from classification_crop import CROP, Unusable, crop_of


class TritonPythonModel:
    """A model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the parameters.

        Raises:
            TritonModelException: a parameter is none that can be; the model is not loaded, and Triton's log says why.
        """
        parameters = json.loads(args["model_config"])["parameters"]
        for key, least in (("resize_size", CROP), ("max_image_pixels", 1)):
            text = parameters[key]["string_value"]
            if not text.isdecimal() or int(text) < least:
                raise pb_utils.TritonModelException(f"{key}: expected a whole number from {least} up, got {text!r}")
        self.resize_size, self.max_pixels = (
            int(parameters[key]["string_value"]) for key in ("resize_size", "max_image_pixels")
        )

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request in the same order; one that is bad does not touch the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """The response to one request, whose input is (N, 1) bytes; N is 1 unless the caller sent several images."""
        files = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        try:
            crops = [crop_of(file, self.resize_size, self.max_pixels) for file in files[:, 0]]
        except Unusable as error:
            # INVALID_ARG blames the caller: HTTP 400. Without a code it would be the model's failure: 500.
            refusal = pb_utils.TritonError(f"image: {error}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        return pb_utils.InferenceResponse([pb_utils.Tensor("pixels", np.stack(crops))])
