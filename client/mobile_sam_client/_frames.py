"""The frame in which the model sees an image, and stand-ins for PyTorch's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from mobile_sam_client._model import FRAME_SIDE

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
SizeHw = tuple[int, int]


class Tensor(np.ndarray[Any, Any]):
    """A NumPy array with the methods of tensors that Segment Anything's examples call."""

    def cpu(self) -> Tensor:
        """Return the array itself."""
        return self

    def numpy(self) -> Array:
        """Return the same data as a plain array."""
        return self.view(np.ndarray)


def tensor(data: Any) -> Tensor:
    """Return data as such an array."""
    return np.asarray(data).view(Tensor)


class ResizeLongestSide:
    """Segment Anything's transform between an image, its coordinates, and the model's frame."""

    def __init__(self, target_length: int = FRAME_SIDE) -> None:
        """Create a transform; `target_length` is the longest side of the frame in pixels."""
        self.target_length = target_length

    def apply_image(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """Scale an image, (H, W, 3) uint8, to the frame."""
        image_height, image_width, _ = image.shape
        height, width = self.get_preprocess_shape(image_height, image_width, self.target_length)
        resized = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized)

    def apply_coords(self, coords: Any, original_size: SizeHw) -> Tensor:
        """Scale (..., 2) coordinates, x then y, to the frame.

        `original_size` is the height and width of their image.
        """
        return tensor(np.asarray(coords) * self._scale_xy(original_size))

    def apply_boxes(self, boxes: Any, original_size: SizeHw) -> Tensor:
        """Scale (B, 4) boxes, x0, y0, x1, y1, as `apply_coords`."""
        corners = np.reshape(boxes, (-1, 2, 2))
        return tensor(self.apply_coords(corners, original_size).reshape(-1, 4))

    apply_coords_torch, apply_boxes_torch = apply_coords, apply_boxes

    def to_image(self, coords: Any, original_size: SizeHw) -> Array:
        """Undo `apply_coords`.

        Rounding to 0.001 pixels keeps the image's corners inside the image.
        """
        scaled: Array = np.round(np.asarray(coords) / self._scale_xy(original_size), 3)
        return scaled

    @staticmethod
    def get_preprocess_shape(oldh: int, oldw: int, long_side_length: int) -> SizeHw:
        """Return height and width in a frame of this length."""
        scale = long_side_length / max(oldh, oldw)
        return max(1, int(oldh * scale + 0.5)), max(1, int(oldw * scale + 0.5))

    def _scale_xy(self, size_hw: SizeHw) -> Array:
        height, width = self.get_preprocess_shape(*size_hw, self.target_length)
        return np.array([width / size_hw[1], height / size_hw[0]])


def upsampled(logits: Floats, size_hw: SizeHw, *, squashed: bool) -> Floats:
    """Scale (256, 256) float32 logits to the size of an image, in one step if it was `squashed`."""
    if squashed:
        return _bilinear(logits, size_hw)
    height, width = ResizeLongestSide.get_preprocess_shape(*size_hw, FRAME_SIDE)
    frame = _bilinear(logits, (FRAME_SIDE, FRAME_SIDE))
    return _bilinear(frame[:height, :width], size_hw)


def _bilinear(plane: Floats, size_hw: SizeHw) -> Floats:
    """Scale (H, W) float32 without anti-aliasing, as PyTorch and OpenCV do."""
    for axis, length in enumerate(size_hw):
        last = plane.shape[axis] - 1
        scale = plane.shape[axis] / length
        position = np.clip((np.arange(length) + 0.5) * scale - 0.5, 0, last)
        low = position.astype(int)
        high = np.minimum(low + 1, last)
        weight = np.expand_dims((position - low).astype(np.float32), 1 - axis)
        plane = plane.take(low, axis) * (1 - weight) + plane.take(high, axis) * weight
    return plane
