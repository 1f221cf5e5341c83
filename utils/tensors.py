"""The tensors of the `mobile_sam` model in Triton, declared once; a test holds its config.pbtxt to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MODEL = "mobile_sam"

DataType = Literal["BYTES", "BOOL", "INT32", "FP32"]


@dataclass(frozen=True)
class Tensor:
    """Name, Triton data type and shape (-1 where it varies) of an input or output."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]


INPUT_IMAGE = Tensor("input_image", "BYTES", (1,))
POINT_COORDS = Tensor("point_coords", "FP32", (1, -1, 2))
POINT_LABELS = Tensor("point_labels", "INT32", (1, -1))
MULTIMASK_OUTPUT = Tensor("multimask_output", "BOOL", (1,))
MASK_FORMAT = Tensor("mask_format", "BYTES", (1,))
SEGMENTED_IMAGE = Tensor("segmented_image", "BYTES", (1,))
INPUTS = (INPUT_IMAGE, POINT_COORDS, POINT_LABELS, MULTIMASK_OUTPUT, MASK_FORMAT, SEGMENTED_IMAGE)

MASK = Tensor("mask", "BYTES", (1,))
PICTURE = Tensor("picture", "BYTES", (1,))
RESULT = Tensor("result", "BYTES", (1,))
PROBLEM = Tensor("problem", "BYTES", (1,))
OUTPUTS = (MASK, PICTURE, RESULT, PROBLEM)
