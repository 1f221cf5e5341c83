"""The lower limit: ONNX Runtime in this process, encoder and decoder on prepared tensors, nothing around them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort


class RawModel:
    """The two graphs of a model repository, with ONNX Runtime's default threads, as the service has them."""

    def __init__(self, repository: Path) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # Its threads must not spin on while another arm is measured; a run itself takes as long as ever.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.encoder, self.decoder = (
            ort.InferenceSession(
                repository / f"mobile_sam_{part}" / "1" / "model.onnx",
                options,
                providers=["CPUExecutionProvider"],
            )
            for part in ("encoder", "decoder")
        )
        self.images = np.random.default_rng(0).integers(0, 256, (1, 1024, 1024, 3), dtype=np.uint8)
        self.prompt = {
            "point_coords": np.array([[[512, 342], [0, 0]]], np.float32),
            "point_labels": np.array([[1, -1]], np.float32),
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }

    def encode(self) -> npt.NDArray[np.float32]:
        """An embedding, (1, 256, 64, 64) float32."""
        sizes = np.array([[683, 1024]], np.int32)
        (embedding,) = self.encoder.run(["image_embeddings"], {"images": self.images, "sizes_hw": sizes})
        return np.asarray(embedding)

    def decode(self, embedding: npt.NDArray[np.float32]) -> None:
        """Masks and scores of one click."""
        self.decoder.run(["low_res_masks", "iou_predictions"], {"image_embeddings": embedding, **self.prompt})
