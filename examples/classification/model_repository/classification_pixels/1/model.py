"""First step of the ensemble: image files to the network's input."""

import io
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from PIL import Image, ImageOps

CROP = 224
MEAN = np.array([123.675, 116.28, 103.53], np.float32)
DEVIATION = np.array([58.395, 57.12, 57.375], np.float32)
"""ImageNet's, times 255: 0.485, 0.456, 0.406 and 0.229, 0.224, 0.225."""


class TritonPythonModel:
    """Model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the length of the shorter side before the centre crop."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.resize_size = int(parameters["resize_size"]["string_value"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An invalid file does not affect the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the response to one request with (N, 1) files; N is mostly 1."""
        files = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        try:
            pixels = np.stack([normalise(self.crop(file)) for file in files[:, 0]])
        except Exception as error:  # Pillow's parsers raise many types
            # INVALID_ARG is the caller's error: HTTP 400. Without a code it would be a 500.
            message = f"image: expected an undamaged PNG, JPEG or WebP file: {type(error).__name__}"
            return pb_utils.InferenceResponse(
                error=pb_utils.TritonError(message, pb_utils.TritonError.INVALID_ARG)
            )
        return pb_utils.InferenceResponse([pb_utils.Tensor("pixels", pixels)])

    def crop(self, file: bytes) -> npt.NDArray[np.uint8]:
        """Return the centre crop of the image, turned as Pillow does, (224, 224, 3) uint8 RGB.

        Within a pixel it is torchvision's Resize and CenterCrop, but only the crop is scaled: a
        long image takes no more memory.
        """
        image = ImageOps.exif_transpose(
            Image.open(io.BytesIO(file), formats=("PNG", "JPEG", "WEBP"))
        ).convert("RGB")
        border = (1 - CROP / self.resize_size) / 2
        return np.asarray(
            ImageOps.fit(image, (CROP, CROP), Image.Resampling.BILINEAR, bleed=border)
        )


def normalise(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return (H, W, 3) uint8 RGB as the network's input, (3, H, W) float32."""
    normalised: npt.NDArray[np.float32] = ((pixels - MEAN) / DEVIATION).transpose(2, 0, 1)
    return normalised
