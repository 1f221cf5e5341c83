"""Lower bound of latency: encoder and decoder in this process, on prepared tensors."""

import json
import time
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engines import ONNX_RUNTIME, Array, load
from benchmarks.servers import CACHED, Turn
from benchmarks.stats import seconds
from sam_onnx.descriptor import Descriptor


def record_of(repository: Path) -> dict[str, Any]:
    """Return the record of the weights in a model repository, `weights.json`."""
    record: dict[str, Any] = json.loads(
        (repository / "mobile_sam" / "1" / "weights.json").read_text()
    )
    return record


def descriptor_of(repository: Path) -> Descriptor:
    """Return the descriptor of the weights in a model repository."""
    return Descriptor(**record_of(repository)["descriptor"])


class RawModel:
    """Encoder and decoder of a model repository, each on an engine with its default number of
    threads.
    """

    def __init__(
        self, repository: Path, encoder: str = ONNX_RUNTIME, decoder: str = ONNX_RUNTIME
    ) -> None:
        self._encoder, self._decoder = (
            load(repository, "encoder", encoder),
            load(repository, "decoder", decoder),
        )
        descriptor = descriptor_of(repository)
        side = descriptor.side
        self._inputs: dict[str, Array] = {
            "images": np.random.default_rng(0).integers(0, 256, (1, side, side, 3), dtype=np.uint8),
            "sizes_hw": np.array([[round(2 / 3 * side), side]], np.int32),
        }
        self._tensors = list(descriptor.embedding)
        self._embedding: dict[str, Array] | None = None

    def encode(self) -> dict[str, Array]:
        """Return an embedding: tensors by name, each for one image."""
        return dict(zip(self._tensors, self._encoder(self._tensors, self._inputs), strict=True))

    def decode(self, embedding: dict[str, Array] | None = None, count: int = 1) -> None:
        """Predict masks and scores for clicks.

        Args:
            embedding: as returned by `encode`; a stored one by default.
            count: number of clicks in the batch.
        """
        if embedding is None:
            if self._embedding is None:
                self._embedding = {name: tensor.copy() for name, tensor in self.encode().items()}
            embedding = self._embedding
        prompt: dict[str, Array] = {
            "point_coords": np.repeat(np.array([[[512, 342], [0, 0]]], np.float32), count, axis=0),
            "point_labels": np.repeat(np.array([[1, -1]], np.float32), count, axis=0),
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        self._decoder(["single_masks", "iou_predictions"], {**embedding, **prompt})

    def turn(self, workload: str, callers: int, count: int, client: Executor) -> Turn:  # noqa: ARG002
        """Run a workload in this process, for one caller."""
        before = time.process_time()
        latencies = [
            seconds(lambda: self.decode(None if workload == CACHED else self.encode()))
            for _ in range(count)
        ]
        return Turn(latencies, sum(latencies), time.process_time() - before)
