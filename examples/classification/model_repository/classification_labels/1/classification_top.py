"""Selection of the best classes from logits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class InvalidInput(ValueError):
    """Invalid input; the message says what was expected and what came."""


def top_classes(logits: Floats, top_k: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.intp], Floats]:
    """Return indices and probabilities of the best classes, (N, k) each, best first, ties by index.

    Args:
        logits: (N, classes).
        top_k: (N, 1) number of classes, equal in all rows, because the result is one array.

    Raises:
        InvalidInput: a number is out of range, or the numbers differ.
    """
    classes, counts = logits.shape[1], sorted({int(count) for count in top_k.ravel()})
    if not 1 <= counts[0] <= counts[-1] <= classes:
        raise InvalidInput(f"expected from 1 to {classes}, got {counts[0] if counts[0] < 1 else counts[-1]}")
    if len(counts) > 1:
        raise InvalidInput(f"expected the same for all images of a request, got {counts[0]} and {counts[-1]}")
    indices = np.argsort(-logits, axis=1, kind="stable")[:, : counts[0]]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return indices, np.take_along_axis(probabilities, indices, axis=1)
