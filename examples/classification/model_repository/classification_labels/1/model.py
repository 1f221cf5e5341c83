"""Last step of the ensemble: logits to labels with probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from classification_top import InvalidInput, top_classes


class TritonPythonModel:
    """Model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the labels and the name of the weights.

        Raises:
            TritonModelException: a file is missing, or the number of labels differs from the number of classes.
        """
        folder = Path(args["model_repository"]) / args["model_version"]
        try:
            labels = (folder / "labels.txt").read_text(encoding="utf-8").splitlines()
            name = json.loads((folder / "weights.json").read_text(encoding="utf-8"))["name"]
        except OSError as error:
            hint = "`python -m examples.classification.prepare` creates it"
            raise pb_utils.TritonModelException(f"{error.filename}: {error.strerror}; {hint}") from None
        logits = next(entry for entry in json.loads(args["model_config"])["input"] if entry["name"] == "logits")
        if [len(labels)] != logits["dims"]:
            raise pb_utils.TritonModelException(f"expected {logits['dims'][0]} labels, got {len(labels)}")
        self.labels, self.name = np.array([label.encode() for label in labels], np.object_), name.encode()

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An invalid request does not affect the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """Return the response to one request with logits (N, classes) and top_k (N, 1)."""
        logits, top_k = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("logits", "top_k"))
        try:
            indices, scores = top_classes(logits, top_k)
        except InvalidInput as error:
            invalid = pb_utils.TritonError(f"top_k: {error}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=invalid)
        weights = np.full((len(logits), 1), self.name, np.object_)
        outputs = {"labels": self.labels[indices], "scores": scores, "weights": weights}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])
