"""BentoML without Triton, as its documentation shows a service: a class, typed inputs and outputs, its own encodings.

An answer of BentoML's class-based services is one value: it cannot hold an array and a picture at once.
"""

# BentoML reads the annotations: they must not be strings, which leaves no `from __future__ import annotations`.

import bentoml
import numpy as np
from PIL.Image import Image

from benchmarks.peers.predictor import Predictor, overlay


@bentoml.service
class PlainBentoml:
    """Segments images."""

    def __init__(self) -> None:
        self.predictor = Predictor()

    @bentoml.api
    def segment(self, input_image: Image, pos_coords: list[list[float]]) -> np.ndarray:  # type: ignore[type-arg]
        """Find an object: a picture and clicks in, its mask out, (H, W) of 0 and 1."""
        return self.predictor.segment(input_image, pos_coords)

    @bentoml.api
    def segmented_image(self, input_image: Image, pos_coords: list[list[float]]) -> Image:
        """The same, and the picture with the object tinted out."""
        return overlay(input_image, self.predictor.segment(input_image, pos_coords))
