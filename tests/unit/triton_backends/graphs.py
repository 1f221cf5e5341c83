"""A small ONNX graph and requests for it."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper


class TritonModelException(Exception):
    pass


class Request:
    def __init__(self, *names, **arrays):
        self.names, self.arrays = names, arrays

    def requested_output_names(self):
        return self.names


def write_model(
    folder: Path,
    width: int | str = "W",
    *,
    version: str = "1",
    count: bool = True,
    batch: int | str = "N",
) -> Path:
    """Write a model with y = x + x and, with `count`, n = size of the batch; return the file.

    n's data and shape come from two nodes: ONNX Runtime's CUDA provider copies one tensor for both
    to the GPU, and its `Expand`, which reads the shape on the CPU, then probably crashes.
    """
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "x"], ["y"]),
            helper.make_node("Shape", ["x"], ["size"], end=1),
            helper.make_node("Shape", ["y"], ["shape"], end=1),
            helper.make_node("Expand", ["size", "shape"], ["n"]),
        ],
        "double",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width]),
            *([helper.make_tensor_value_info("n", TensorProto.INT64, [batch])] if count else []),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / version / "model.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def config(batched: bool = True, **fields) -> dict:
    batch = [] if batched else [-1]
    return {
        "max_batch_size": 8 if batched else 0,
        "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [*batch, -1]}],
        "output": [
            {"name": "y", "data_type": "TYPE_FP32", "dims": [*batch, -1]},
            {"name": "n", "data_type": "TYPE_INT64", "dims": batch},
        ],
        **fields,
    }


def parameters(**values: str) -> dict:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


def load(backend, folder: Path, model_config: dict, kind: str = "CPU"):
    model = backend.TritonPythonModel()
    model.initialize(
        {
            "model_config": json.dumps(model_config),
            "model_repository": str(folder),
            "model_version": "1",
            "model_instance_kind": kind,
            "model_instance_device_id": "0",
        }
    )
    return model


def x(*rows) -> np.ndarray:
    return np.array(rows, np.float32)
