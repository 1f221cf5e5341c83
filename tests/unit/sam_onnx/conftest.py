from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from sam_onnx.random_weights import mobile_sam_shapes, random_state

SMALL = mobile_sam_shapes(
    widths=(16, 24, 32, 40),
    depths=(1, 1, 2, 1),
    heads=(1, 2, 4, 5),
    windows=(7, 7, 5, 4),
    expansion=2,
    embedding=64,
    transformer_depth=3,
    transformer_mlp=96,
    mask_channels=8,
)


def session(model: Any, *outputs: str) -> Callable[..., list[npt.NDArray[Any]]]:
    """Return a function that runs an ONNX model; it computes these outputs, by default all but the single masks."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    every = [output.name for output in runtime.get_outputs() if output.name != "single_masks"]
    return lambda **inputs: runtime.run(outputs or every, inputs)


def decode(decoder: Any, embedding: Any, points: Any, labels: Any, *masks: Any) -> Any:
    """Run a decoder on prompts; `masks` are the inputs `mask_input` and `has_mask_input`, none by default."""
    mask, has_mask = masks or (np.zeros((1, 1, 256, 256), np.float32), [0])
    return decoder(
        image_embeddings=embedding,
        point_coords=np.array(points, np.float32),
        point_labels=np.array(labels, np.float32),
        mask_input=mask,
        has_mask_input=np.array(has_mask, np.float32),
    )


@pytest.fixture(scope="session")
def small_state() -> Mapping[str, npt.NDArray[np.generic]]:
    return random_state(SMALL)
