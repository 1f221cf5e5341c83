"""MobileSAM on BentoML alone: a service for the requests over a service for the model, which batches across callers.

An answer of BentoML's class-based services is one value: it cannot hold an array and a picture at once.
"""

# BentoML reads the annotations: they must not be strings, which leaves no `from __future__ import annotations`.

from typing import Any, Literal

import bentoml
import numpy as np
from bentoml.exceptions import BadInput, BentoMLException
from PIL import Image, UnidentifiedImageError
from pydantic import Field, FiniteFloat, ValidationError, field_validator

from examples.bentoml_runner import predictor

BATCH, MAX_POINTS = 4, 256
RED = (255, 60, 60)


# BentoML 1.4.39 opens new connections to another service after each hundred requests or five minutes, and closes the
# old ones under requests that are on their way: they fail or hang. It is told to keep them.
@bentoml.service(runner_connection={"max_requests": 2**62, "max_age": 1e9})
class Encoder:
    """The heavy half, in a process of its own."""

    def __init__(self) -> None:
        self._encoder = predictor.Encoder()

    @bentoml.api(batchable=True, max_batch_size=BATCH)
    def encode(self, frames: list[np.ndarray]) -> np.ndarray:  # type: ignore[type-arg]
        """Embeddings, (N, 64, 64, 256) float16, of the frames that one call or several have brought."""
        return self._encoder.encode(frames)


class Click(bentoml.IODescriptor):
    """The form of a request."""

    input_image: Image.Image
    pos_coords: list[tuple[FiniteFloat, FiniteFloat]] = Field(min_length=1, max_length=MAX_POINTS)
    labels: list[Literal[0, 1, 2, 3]] | None = None

    @field_validator("input_image")
    @classmethod
    def check_picture(cls, value: Any) -> Image.Image:
        """Refuse what is no file, which BentoML hands on as it came."""
        if not isinstance(value, Image.Image):
            raise ValueError(f"expected a file in a form, got {type(value).__name__}")  # noqa: TRY004
        return value

    @classmethod
    async def from_http_request(cls, request: Any, serde: Any) -> Any:
        """The fields of a request. Where they cannot be read BentoML would say 500, and it is the caller's fault."""
        try:
            return await super().from_http_request(request, serde)
        except (ValidationError, BentoMLException):
            raise
        except (UnidentifiedImageError, KeyError):
            raise BadInput("input_image: expected a picture of the type that the form says, got another file") from None
        except Exception as error:  # of the form's parser
            raise BadInput(f"expected multipart/form-data, got what cannot be read: {error}") from None


@bentoml.service(threads=2 * BATCH)  # those that wait for a batch, and those that make the next one
class BentomlRunner:
    """Segments images."""

    encoder = bentoml.depends(Encoder)

    def __init__(self) -> None:
        self._decoder = predictor.Decoder()

    @bentoml.api(input_spec=Click)
    def segment(self, **click: Any) -> np.ndarray:  # type: ignore[type-arg]
        """Find an object: a picture and points in, its mask out, (H, W) of 0 and 1."""
        return self._mask(**click)

    @bentoml.api(input_spec=Click)
    def segmented_image(self, **click: Any) -> Image.Image:
        """The same, and the picture with the object tinted out."""
        mask = self._mask(**click)
        picture = click["input_image"].convert("RGB")
        tinted = Image.blend(picture, Image.new("RGB", picture.size, RED), 0.5)
        return Image.composite(tinted, picture, Image.fromarray(mask * np.uint8(255)))

    def _mask(self, input_image: Image.Image, pos_coords: predictor.Points, labels: list[int] | None) -> predictor.Mask:
        labels = labels or [1] * len(pos_coords)
        try:
            predictor.check_points(input_image.size, pos_coords, labels)
            frame = predictor.frame_of(input_image)
        except predictor.Unusable as error:
            raise BadInput(str(error)) from None
        return self._decoder.mask(self.encoder.encode([frame]), input_image.size, pos_coords, labels)


svc = BentomlRunner
