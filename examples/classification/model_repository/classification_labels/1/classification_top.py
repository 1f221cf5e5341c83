"""From logits to the likeliest classes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


class Unusable(ValueError):
    """The wish cannot be met; the message says what was expected and what came."""


def top_classes(logits: Floats, top_k: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.intp], Floats]:
    """Indices and probabilities of the likeliest classes, (N, k) each, the likeliest first; of equals the first.

    Args:
        logits: (N, classes).
        top_k: (N, 1), how many; the same for all rows, as an answer is one array.

    Raises:
        Unusable: fewer than one, more than there are, or not the same for all.
    """
    classes, wanted = logits.shape[1], sorted({int(count) for count in top_k.ravel()})
    if not 1 <= wanted[0] <= wanted[-1] <= classes:
        raise Unusable(f"expected from 1 to {classes}, got {wanted[0] if wanted[0] < 1 else wanted[-1]}")
    if len(wanted) > 1:
        raise Unusable(f"expected the same for all images of a request, got {wanted[0]} and {wanted[-1]}")
    indices = np.argsort(-logits, axis=1, kind="stable")[:, : wanted[0]]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return indices, np.take_along_axis(probabilities, indices, axis=1)
