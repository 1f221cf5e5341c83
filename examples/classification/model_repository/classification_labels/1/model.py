"""Last step of the ensemble: logits to labels with probabilities."""

from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only

TOP = 5


class TritonPythonModel:
    """Model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the labels, one per line."""
        file = Path(args["model_repository"]) / args["model_version"] / "labels.txt"
        self.labels = np.array(file.read_bytes().splitlines(), np.object_)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the best classes of (N, 1000) logits, best first."""
        logits = pb_utils.get_input_tensor_by_name(request, "logits").as_numpy()
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
        best = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
        scores = np.take_along_axis(probabilities, best, axis=1)
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("labels", self.labels[best]), pb_utils.Tensor("scores", scores)]
        )
