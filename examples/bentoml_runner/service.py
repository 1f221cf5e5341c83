"""MobileSAM with BentoML alone: a service for requests and one for the encoder, which batches
across callers.

BentoML's class-based services return a single value, so array and picture need separate routes.
"""

# No `from __future__ import annotations`: BentoML evaluates the annotations, which must not be
# strings.

from typing import Any, Literal

import bentoml
import numpy as np
from bentoml.exceptions import BadInput, BentoMLException
from PIL import Image, UnidentifiedImageError
from pydantic import Field, FiniteFloat, ValidationError, field_validator

from examples.bentoml_runner import predictor

BATCH, MAX_POINTS = 4, 256
RED = (255, 60, 60)


# BentoML 1.4.39 replaces its connections to another service after 100 requests or 5 minutes, and
# closes the old ones while requests are in flight: they fail or hang. These limits disable that.
@bentoml.service(runner_connection={"max_requests": 2**62, "max_age": 1e9})
class Encoder:
    """Image encoder, run in a separate process."""

    def __init__(self) -> None:
        self._encoder = predictor.load("encoder")

    @bentoml.api(batchable=True, max_batch_size=BATCH)
    def encode(self, frames: list[np.ndarray]) -> np.ndarray:  # type: ignore[type-arg]
        """Encode the frames of one or several calls; return (N, 64, 64, 256) float16."""
        return predictor.encode(self._encoder, frames)


class ClickForm(bentoml.IODescriptor):
    """Form fields of a request."""

    input_image: Image.Image
    pos_coords: list[tuple[FiniteFloat, FiniteFloat]] = Field(min_length=1, max_length=MAX_POINTS)
    labels: list[Literal[0, 1, 2, 3]] | None = None

    @field_validator("input_image")
    @classmethod
    def check_picture(cls, value: Any) -> Image.Image:
        """Reject values that are not files, which BentoML passes on unchecked."""
        if not isinstance(value, Image.Image):
            raise ValueError(f"expected a file in a form, got {type(value).__name__}")  # noqa: TRY004
        return value

    @classmethod
    async def from_http_request(cls, request: Any, serde: Any) -> Any:
        """Parse the form. Errors become 400: BentoML would answer 500 for an unparsable form."""
        try:
            return await super().from_http_request(request, serde)
        except (ValidationError, BentoMLException):
            raise
        except (UnidentifiedImageError, KeyError):
            raise BadInput(
                "input_image: expected a picture of the form part's content type"
            ) from None
        except Exception as error:  # from the form parser
            raise BadInput(f"not valid multipart/form-data: {error}") from None


@bentoml.service(threads=2 * BATCH)  # for the current batch and the next one
class BentomlRunner:
    """Segmentation service."""

    encoder = bentoml.depends(Encoder)

    def __init__(self) -> None:
        self._decoder = predictor.load("decoder")

    @bentoml.api(input_spec=ClickForm)
    def segment(self, **click: Any) -> np.ndarray:  # type: ignore[type-arg]
        """Segment the object at the points; return its mask, (H, W) of 0 and 1."""
        return self._mask(**click)

    @bentoml.api(input_spec=ClickForm)
    def segmented_image(self, **click: Any) -> Image.Image:
        """Segment the object at the points; return the picture with the object tinted."""
        mask = self._mask(**click)
        picture = click["input_image"].convert("RGB")
        tinted = Image.blend(picture, Image.new("RGB", picture.size, RED), 0.5)
        return Image.composite(tinted, picture, Image.fromarray(mask * np.uint8(255)))

    def _mask(
        self, input_image: Image.Image, pos_coords: predictor.Points, labels: list[int] | None
    ) -> predictor.UInt8Mask:
        labels, (width, height) = labels or [1] * len(pos_coords), input_image.size
        if len(labels) != len(pos_coords):
            raise BadInput(f"labels: expected {len(pos_coords)}, one per point, got {len(labels)}")
        for x, y in pos_coords:
            if not (0 <= x <= width and 0 <= y <= height):
                raise BadInput(
                    f"pos_coords: expected points within {width} x {height} pixels, got {[x, y]}"
                )
        try:
            picture = input_image.convert("RGB")
        except Exception as error:  # Pillow raises different types for damaged files
            raise BadInput(f"the picture is incomplete or damaged: {error}") from None
        embedding = self.encoder.encode([predictor.to_frame(picture)])
        return predictor.decode(self._decoder, embedding, picture.size, pos_coords, labels)


svc = BentomlRunner
