"""The ensemble's last step: the net's logits to labels with probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # exists inside Triton only
from classification_top import Unusable, top_classes


class TritonPythonModel:
    """A model of Triton's Python backend."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the labels, and what the weights are called.

        Raises:
            TritonModelException: a file is missing, or there are more or fewer labels than classes.
        """
        folder = Path(args["model_repository"]) / args["model_version"]
        try:
            labels = (folder / "labels.txt").read_text(encoding="utf-8").splitlines()
            name = json.loads((folder / "weights.json").read_text(encoding="utf-8"))["name"]
        except OSError as error:
            hint = "`python -m examples.classification.prepare` writes it"
            raise pb_utils.TritonModelException(f"{error.filename}: {error.strerror}; {hint}") from None
        logits = next(entry for entry in json.loads(args["model_config"])["input"] if entry["name"] == "logits")
        if [len(labels)] != logits["dims"]:
            raise pb_utils.TritonModelException(f"expected {logits['dims'][0]} labels, got {len(labels)}")
        self.labels, self.name = np.array([label.encode() for label in labels], np.object_), name.encode()

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response for each request in the same order; one that is bad does not touch the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        """The response to one request: logits (N, classes), top_k (N, 1)."""
        logits, top_k = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("logits", "top_k"))
        try:
            indices, scores = top_classes(logits, top_k)
        except Unusable as error:
            refusal = pb_utils.TritonError(f"top_k: {error}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refusal)
        weights = np.full((len(logits), 1), self.name, np.object_)
        outputs = {"labels": self.labels[indices], "scores": scores, "weights": weights}
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])
