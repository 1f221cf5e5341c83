"""One call of the model, as the parts of the service hand it on: the image, and what to do with
it.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

Region = tuple[float, float, float, float] | Literal["auto"]
"""x0, y0, x1, y1 in pixels of the displayed image, or a part around the prompts."""


@dataclass(frozen=True)
class ImageSource:
    """An image file, an image id, or both if the id of the file is known."""

    file: bytes | None
    """A PNG, JPEG or WebP file."""
    image_id: str | None
    owner: str = ""
    """Name of the request's API key; cached embeddings are separate per owner."""
    field: str = dataclasses.field(default="input_image", compare=False)
    """Field or part of the request with the image, for error messages."""
    region: Region | None = None
    """Part of the image to encode; None: all of it."""
    scale_down: bool = dataclasses.field(default=False, compare=False)
    """Whether an image above the pixel limit is worked on at a smaller size, for tools whose users
    cannot scale it."""


@dataclass(frozen=True)
class InferenceRequest:
    """What a model does with an image: segments objects, or a batch of grid points."""

    inputs: Mapping[str, npt.NDArray[Any]]
    """Tensors by name, as `orchestrator.tensors` declares them, without the image.

    - `point_coords`: (N, P, 2) float32, x then y, pixels of the displayed image; of a grid (N, 2).
    - `point_labels`: (N, P) int32: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right, -2
      padding.
    - `mask_input`, if any: (M, 256, 256) float32 logits of earlier responses.
    - `mask_input_object`: (M,) int32, the object of each of them.
    """
    options: Mapping[str, Any]
    """Options by the names of the HTTP API's fields, and `document`: whether the result has masks
    and picture in it."""
    model_version: int | None = None
    """None: the newest loaded version."""
    point_paths: tuple[tuple[str, ...], ...] = ()
    """Request path of each point of each object, for error messages."""
    background: bool = False
    """True if no caller waits for the answer: it waits for no slot, and takes none."""

    @property
    def objects(self) -> int:
        """Number of objects."""
        return len(self.point_paths)
