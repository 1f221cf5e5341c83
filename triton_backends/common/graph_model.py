"""Common part of backends that run one graph: batching of requests, and checks of config.pbtxt against the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils  # exists inside Triton only

Array = npt.NDArray[Any]

Signature = dict[str, tuple[str, int]]
"""Triton data type and number of dimensions, by tensor name."""


class GraphModel:
    """Instance of a model that is one graph; a backend implements `load` and `run`."""

    def load(self, path: Path, config: dict[str, Any], args: dict[str, str]) -> tuple[Signature, Signature]:
        """Load the graph of a file and return its inputs and outputs."""
        raise NotImplementedError

    def run(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        """Run the graph on all inputs and return the named outputs, which stay valid until the next `execute`."""
        raise NotImplementedError

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model; Triton reports an exception as the model's load error."""
        config = json.loads(args["model_config"])
        filename = config.get("default_model_filename") or "model.onnx"
        path = Path(args["model_repository"]) / args["model_version"] / filename
        if not path.is_file():
            raise pb_utils.TritonModelException(f"{path}: no such file; `make weights` writes it")
        try:
            inputs, outputs = self.load(path, config, args)
        except pb_utils.TritonModelException:
            raise
        except Exception as error:  # engines raise many types
            raise pb_utils.TritonModelException(f"{path}: {first_line(error)}") from None
        self.batched = int(config.get("max_batch_size", 0)) > 0
        for side, graph in (("input", inputs), ("output", outputs)):
            check_signature(config, side, graph, path)
        self.inputs = list(inputs)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests, those of equal shapes in one run; a run that fails does not affect the others."""
        feeds = [
            {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
            for request in requests
        ]
        responses: list[Any] = [None] * len(requests)
        for group in self._groups(feeds):
            names = sorted({name for index in group for name in requests[index].requested_output_names()})
            try:
                answers = self._run([feeds[index] for index in group], names)
            except Exception as error:
                failure = pb_utils.InferenceResponse(error=pb_utils.TritonError(first_line(error)))
                for index in group:
                    responses[index] = failure
                continue
            for index, answer in zip(group, answers, strict=True):
                requested = requests[index].requested_output_names()
                tensors = [pb_utils.Tensor(name, answer[name]) for name in names if name in requested]
                responses[index] = pb_utils.InferenceResponse(output_tensors=tensors)
        return responses

    def _groups(self, feeds: list[dict[str, Array]]) -> list[list[int]]:
        """Return the indices of the requests, grouped by those that can run as one batch."""
        if not self.batched:
            return [[index] for index in range(len(feeds))]
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for index, feed in enumerate(feeds):
            groups.setdefault(tuple(feed[name].shape[1:] for name in self.inputs), []).append(index)
        return list(groups.values())

    def _run(self, feeds: list[dict[str, Array]], names: list[str]) -> list[dict[str, Array]]:
        if len(feeds) == 1:
            return [dict(zip(names, self.run(feeds[0], names), strict=True))]
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in self.inputs}
        ends = np.cumsum([feed[self.inputs[0]].shape[0] for feed in feeds])[:-1]
        parts = [np.split(output, ends) for output in self.run(joined, names)]
        return [dict(zip(names, answer, strict=True)) for answer in zip(*parts, strict=True)]


def parameter(config: dict[str, Any], key: str) -> str | None:
    """Return an entry of `parameters`, or None."""
    entry = config.get("parameters", {}).get(key)
    return entry["string_value"] if entry else None


def first_line(error: Exception) -> str:
    """Return the first line of an error's message that is not a location in the engine's sources."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
    return (lines or [type(error).__name__])[0]


def check_signature(config: dict[str, Any], side: str, graph: Signature, path: Path) -> None:
    """Check config.pbtxt against the graph, as NVIDIA's backends do.

    Raises:
        TritonModelException: a tensor is missing on either side or differs in type or number of dimensions.
    """
    batch = 1 if int(config.get("max_batch_size", 0)) > 0 else 0
    declared = {entry["name"]: (entry["data_type"], len(entry["dims"]) + batch) for entry in config[side]}
    if graph != declared:
        raise pb_utils.TritonModelException(f"{path}: {side}s are {graph}, config.pbtxt declares {declared}")
