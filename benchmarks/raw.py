"""Lower bound of latency: encoder and decoder in this process, on prepared tensors."""

from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import psutil

from benchmarks.arms import CACHED, Turn
from benchmarks.engines import ONNX_RUNTIME, Array, load
from benchmarks.figures import seconds


class RawModel:
    """Encoder and decoder of a model repository, each on an engine with its default number of threads."""

    def __init__(self, repository: Path, encoder: str = ONNX_RUNTIME, decoder: str = ONNX_RUNTIME) -> None:
        self._encoder, self._decoder = (
            load(repository / f"mobile_sam_{part}" / "1" / "model.onnx", engine)
            for part, engine in (("encoder", encoder), ("decoder", decoder))
        )
        self._images = np.random.default_rng(0).integers(0, 256, (1, 1024, 1024, 3), dtype=np.uint8)
        self._embedding: Array | None = None

    def encode(self) -> Array:
        """Return an embedding, (1, 64, 64, 256)."""
        sizes = np.array([[683, 1024]], np.int32)
        return self._encoder(["image_embeddings"], {"images": self._images, "sizes_hw": sizes})[0]

    def decode(self, embedding: Array | None = None, count: int = 1) -> None:
        """Predict masks and scores for clicks.

        Args:
            embedding: as returned by `encode`; a stored one by default.
            count: number of clicks in the batch.
        """
        if embedding is None:
            if self._embedding is None:
                self._embedding = self.encode().copy()
            embedding = self._embedding
        prompt: dict[str, Array] = {
            "point_coords": np.repeat(np.array([[[512, 342], [0, 0]]], np.float32), count, axis=0),
            "point_labels": np.repeat(np.array([[1, -1]], np.float32), count, axis=0),
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        self._decoder(["single_masks", "iou_predictions"], {"image_embeddings": embedding, **prompt})

    def click_on_a_new_image(self) -> None:
        """Encode and decode, as every cold request must."""
        self.decode(self.encode())

    def turn(self, workload: str, callers: int, count: int, client: Executor) -> Turn:  # noqa: ARG002
        """Run a workload in this process, for one caller."""
        work = self.decode if workload == CACHED else self.click_on_a_new_image
        before = psutil.Process().cpu_times()
        latencies = [seconds(work) for _ in range(count)]
        after = psutil.Process().cpu_times()
        cpu = after.user + after.system - before.user - before.system
        return Turn(latencies, sum(latencies), cpu_seconds=cpu)
