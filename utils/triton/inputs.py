"""Arrays as inputs of requests to Triton."""

from typing import Any

import numpy.typing as npt
from tritonclient.http import InferInput
from tritonclient.utils import np_to_triton_dtype


def infer_input(name: str, value: npt.NDArray[Any]) -> InferInput:
    """Return an input of a request, in Triton's binary format."""
    tensor = InferInput(name, list(value.shape), np_to_triton_dtype(value.dtype))
    tensor.set_data_from_numpy(value, binary_data=True)
    return tensor
