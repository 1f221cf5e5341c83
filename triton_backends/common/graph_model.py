"""Common part of backends that run one graph: batching of requests, and config.pbtxt completed
from and checked against the graph.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils  # exists inside Triton only

Array = npt.NDArray[Any]

Signature = dict[str, tuple[str, list[int]]]
"""The engine's data type and the shape by tensor name, -1 for a variable size."""
TYPE_NAMES = {
    "TYPE_FP32": ("f32", "tensor(float)"),
    "TYPE_FP16": ("f16", "tensor(float16)"),
    "TYPE_BF16": ("bf16", "tensor(bfloat16)"),
    "TYPE_FP64": ("f64", "tensor(double)"),
    "TYPE_UINT8": ("u8", "tensor(uint8)"),
    "TYPE_INT8": ("i8", "tensor(int8)"),
    "TYPE_INT32": ("i32", "tensor(int32)"),
    "TYPE_INT64": ("i64", "tensor(int64)"),
    "TYPE_BOOL": ("boolean", "tensor(bool)"),
    "TYPE_STRING": ("string", "tensor(string)"),
}
"""OpenVINO's and ONNX Runtime's names of Triton's data types."""
TRITON_TYPES: dict[str, str] = {}
for _triton_type, _names in TYPE_NAMES.items():
    TRITON_TYPES.update(dict.fromkeys(_names, _triton_type))
DEFAULT_MAX_BATCH_SIZE = 4
"""Maximum batch size of a model that does not state one, as in NVIDIA's backends."""
SCHEDULERS = ("dynamic_batching", "sequence_batching")
"""Fields of config.pbtxt that say how Triton batches requests."""
MODELS_OF_MAKE_WEIGHTS = ("mobile_sam_encoder", "mobile_sam_decoder")
"""Models of this repository whose files `make weights` writes."""


class Engine(Protocol):
    """A loaded graph."""

    inputs: Signature
    outputs: Signature
    one_by_one: bool
    """True if a batch is no faster than its items."""

    def run(self, feed: dict[str, Array], names: list[str]) -> list[Array]:
        """Run the graph on all inputs and return the named outputs."""


class GraphModel:
    """Instance of a model that is one graph; a backend implements `read` and `load`."""

    @staticmethod
    def read(path: Path) -> tuple[Signature, Signature]:
        """Return the inputs and outputs of the graph in a file."""
        raise NotImplementedError

    def load(self, path: Path, config: dict[str, Any], args: dict[str, str]) -> Engine:
        """Load the graph of a file."""
        raise NotImplementedError

    @classmethod
    def auto_complete_config(cls, auto_complete_model_config: Any) -> Any:
        """Add what config.pbtxt leaves out: inputs, outputs and batching, as NVIDIA's backends do.

        Triton calls it before `initialize`, in a separate process, unless auto-complete is
        disabled. A config.pbtxt that declares inputs and outputs stays as it is. If it declares no
        inputs, a graph is batched if all its tensors have a variable first size and further ones.
        Requests are batched across callers if `max_batch_size` is larger than 1 and config.pbtxt
        names no scheduler.

        Raises:
            TritonModelException: the graph cannot be read, or config.pbtxt has a `max_batch_size`
                but the graph has a fixed batch size.
        """
        completed = auto_complete_model_config
        config = completed.as_dict()
        path = model_file(Path(pb_utils.get_model_dir()), config)
        with errors_naming(path):
            inputs, outputs = cls.read(path)
        if config["input"] and config["output"]:
            return completed
        shapes = [shape for _, shape in [*inputs.values(), *outputs.values()]]
        max_batch_size = config["max_batch_size"]
        if max_batch_size and not all(shape[:1] == [-1] for shape in shapes):
            raise pb_utils.TritonModelException(
                f"{path}: config.pbtxt has max_batch_size {max_batch_size}, but the graph does not"
                " support batches: the first size of each input and output must be variable, got"
                f" {shapes}"
            )
        if (
            not max_batch_size
            and not config["input"]
            and all(shape[:1] == [-1] and shape[1:] for shape in shapes)
        ):
            max_batch_size = DEFAULT_MAX_BATCH_SIZE
            completed.set_max_batch_size(max_batch_size)
        if max_batch_size > 1 and not any(
            config.get(scheduler) is not None for scheduler in SCHEDULERS
        ):
            completed.set_dynamic_batching()
        batch = 1 if max_batch_size else 0
        for side, graph, add in (
            ("input", inputs, completed.add_input),
            ("output", outputs, completed.add_output),
        ):
            declared = {entry["name"] for entry in config[side]}
            for name, (data_type, shape) in graph.items():
                if name not in declared:
                    add(
                        {
                            "name": name,
                            "data_type": TRITON_TYPES.get(data_type, data_type),
                            "dims": shape[batch:],
                        }
                    )
        return completed

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model; Triton reports an exception as the model's load error."""
        config = json.loads(args["model_config"])
        os.nice(int(parameters_of(config).get("nice", 0)))  # before the engine starts its threads
        path = model_file(Path(args["model_repository"]) / args["model_version"], config)
        with errors_naming(path):
            self.engine = self.load(path, config, args)
        for side, graph in (("input", self.engine.inputs), ("output", self.engine.outputs)):
            check_signature(config, side, graph, path)
        self.joins = int(config.get("max_batch_size", 0)) > 0 and not self.engine.one_by_one

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests; equal shapes share a run, and a run that fails does not affect
        the others.
        """
        feeds = [
            {
                name: pb_utils.get_input_tensor_by_name(request, name).as_numpy()
                for name in self.engine.inputs
            }
            for request in requests
        ]
        responses: list[Any] = [None] * len(requests)
        for group in self._groups(feeds):
            requested: set[str] = set()
            for index in group:
                requested.update(requests[index].requested_output_names())
            names = sorted(requested)
            try:
                answers = self._run([feeds[index] for index in group], names)
            except Exception as error:
                failure = pb_utils.InferenceResponse(error=pb_utils.TritonError(first_line(error)))
                for index in group:
                    responses[index] = failure
                continue
            for index, answer in zip(group, answers, strict=True):
                requested = requests[index].requested_output_names()
                tensors = [
                    pb_utils.Tensor(name, answer[name]) for name in names if name in requested
                ]
                responses[index] = pb_utils.InferenceResponse(output_tensors=tensors)
        return responses

    def _groups(self, feeds: list[dict[str, Array]]) -> list[list[int]]:
        """Return the indices of the requests, grouped by those that can run as one batch."""
        groups: dict[Any, list[int]] = {}
        for index, feed in enumerate(feeds):
            key = tuple(array.shape[1:] for array in feed.values()) if self.joins else index
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def _run(self, feeds: list[dict[str, Array]], names: list[str]) -> list[dict[str, Array]]:
        if len(feeds) == 1:
            return [dict(zip(names, self.engine.run(feeds[0], names), strict=True))]
        joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
        ends = np.cumsum([len(next(iter(feed.values()))) for feed in feeds])[:-1]
        parts = [np.split(output, ends) for output in self.engine.run(joined, names)]
        return [dict(zip(names, answer, strict=True)) for answer in zip(*parts, strict=True)]


def model_file(folder: Path, config: dict[str, Any]) -> Path:
    """Return the graph's file in the folder of a model version; raise `TritonModelException` if
    there is none.
    """
    path = folder / (config.get("default_model_filename") or "model.onnx")
    if not path.is_file():
        remedy = "put the model there, or name its file in config.pbtxt: default_model_filename"
        if config.get("name") in MODELS_OF_MAKE_WEIGHTS:
            remedy = "`make weights` writes it"
        raise pb_utils.TritonModelException(f"{path}: no such file; {remedy}")
    return path


@contextmanager
def errors_naming(path: Path) -> Iterator[None]:
    """Turn errors of the body into a `TritonModelException` of one line that names the file."""
    try:
        yield
    except Exception as error:  # engines raise many types
        raise pb_utils.TritonModelException(f"{path}: {first_line(error)}") from None


def parameters_of(config: dict[str, Any]) -> dict[str, str]:
    """Return the `parameters` of a model's configuration."""
    return {
        name: str(value["string_value"]) for name, value in config.get("parameters", {}).items()
    }


def first_line(error: Exception) -> str:
    """Return the first line of an error's message that is not a location in the engine's
    sources.
    """
    lines = [
        line
        for line in str(error).splitlines()
        if line.strip() and not line.startswith("Exception from")
    ]
    return (lines or [type(error).__name__])[0]


def check_signature(config: dict[str, Any], side: str, graph: Signature, path: Path) -> None:
    """Check config.pbtxt against the graph, as NVIDIA's backends do.

    Raises:
        TritonModelException: a tensor is missing on either side or differs in type or number of
            dimensions.
    """
    batch = 1 if int(config.get("max_batch_size", 0)) > 0 else 0
    declared = {
        entry["name"]: (entry["data_type"], len(entry["dims"]) + batch) for entry in config[side]
    }
    actual = {
        name: (TRITON_TYPES.get(data_type, data_type), len(shape))
        for name, (data_type, shape) in graph.items()
    }
    if actual != declared:
        message = f"{path}: {side}s are {actual}, config.pbtxt declares {declared}"
        raise pb_utils.TritonModelException(message)
