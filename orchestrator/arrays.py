"""Types of arrays that several modules share.

Frames and units are in the docstrings of functions.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BoolMask = npt.NDArray[np.bool_]
"""Mask (H, W), True inside the object."""
UInt8Mask = npt.NDArray[np.uint8]
"""Mask (H, W), 1 inside the object and 0 outside."""
Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]
"""Labels of points, as `orchestrator.tensors` names them."""
Logits = npt.NDArray[np.float32]
"""Mask (H, W) before the threshold: inside the object where it is above 0, or above the
request's."""
