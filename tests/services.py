"""What tests add to services: keys, limits, and other weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from sam_onnx import model
from sam_onnx.repository import Identity, Version

KEYS = {
    "alice": "alice-key-of-24-letters",
    "bob": "bobs-key-of-24-letters..",
    "eve": "eves-key-of-24-letters..",
    "tools": "tools-key-of-24-letters.",
}
"""API keys of the service with keys, by caller."""
MAX_BODY_BYTES = 1_000_000
"""Limit of bodies of the service with keys."""
ORIGIN = "https://annotate.example"
"""Origin of pages that may call the service with keys."""


def write_other_weights(repository: Path, version: int = 1, name: str = "other") -> str:
    """Write weights of this name that give other masks than the built-in weights; return the
    name.
    """
    descriptor, networks = model.builtin()
    nodes = [
        node for network in networks for node in network.graph.node if node.op_type == "Constant"
    ]
    for tensor in (node.attribute[0].t for node in nodes):
        if (values := numpy_helper.to_array(tensor)).ndim > 1 and values.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(values * np.float32(1.01), tensor.name))
    digest = hashlib.sha256(name.encode()).hexdigest()
    identity = Identity(name, digest, trained=True, note="", descriptor=descriptor)
    Version(repository, version).write(networks, identity, name)
    return name


def write_broken_encoder(repository: Path, version: int) -> None:
    """Write weights whose encoder returns the same embedding for every image."""
    embedding = np.ones((1, 64, 64, 256), np.float16)
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["images"], ["batch"], end=1),
            helper.make_node("Concat", ["batch", "sizes"], ["shape"], axis=0),
            helper.make_node("Expand", ["embedding", "shape"], ["image_embeddings"]),
        ],
        "broken",
        [
            helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", 1024, 1024, 3]),
            helper.make_tensor_value_info("sizes_hw", TensorProto.INT32, ["N", 2]),
        ],
        [
            helper.make_tensor_value_info(
                "image_embeddings", TensorProto.FLOAT16, ["N", 64, 64, 256]
            )
        ],
        [
            numpy_helper.from_array(embedding, "embedding"),
            numpy_helper.from_array(np.array(embedding.shape[1:]), "sizes"),
        ],
    )
    broken = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    descriptor, (_, decoder) = model.builtin()
    identity = Identity(
        "broken",
        hashlib.sha256(b"broken").hexdigest(),
        trained=True,
        note="",
        descriptor=descriptor,
    )
    Version(repository, version).write([broken, decoder], identity, "broken")
