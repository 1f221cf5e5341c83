import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from sam_onnx.__main__ import main
from sam_onnx.random_weights import mobile_sam_shapes, random_state
from tests.family.cases import MODELS, noisy_state, sam_shapes

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
    """Return a function that runs an ONNX model; it computes these outputs, by default all but
    the single masks.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # others would spin between runs
    runtime = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    every = [output.name for output in runtime.get_outputs() if output.name != "single_masks"]
    return lambda **inputs: runtime.run(outputs or every, inputs)


def decode(decoder: Any, embedding: Any, points: Any, labels: Any, *masks: Any) -> Any:
    """Run a decoder on prompts.

    Args:
        embedding: a tensor, or several by name.
        masks: `mask_input` and `has_mask_input`, none by default.
    """
    mask, has_mask = masks or (np.zeros((1, 1, 256, 256), np.float32), [0])
    return decoder(
        **(embedding if isinstance(embedding, dict) else {"image_embeddings": embedding}),
        point_coords=np.array(points, np.float32),
        point_labels=np.array(labels, np.float32),
        mask_input=mask,
        has_mask_input=np.array(has_mask, np.float32),
    )


@pytest.fixture(scope="session")
def small_state() -> Mapping[str, npt.NDArray[np.generic]]:
    return random_state(SMALL)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "repository"


@pytest.fixture
def run(output: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Function that runs the command, checks its exit status, and returns what it reports."""

    def run(*arguments: object, status: int = 0) -> str:
        assert main(["--output", str(output), *map(str, arguments)]) == status
        return capsys.readouterr().err

    return run


@pytest.fixture
def checkpoint(tmp_path: Path, small_state: Any) -> Path:
    path = tmp_path / "small.npz"
    np.savez(path, **small_state)
    return path


def record(output: Path, version: int = 1) -> Any:
    return json.loads((output / f"mobile_sam/{version}/weights.json").read_text())


@pytest.fixture
def vit_checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "vit.npz"
    np.savez(path, **noisy_state(sam_shapes(**MODELS["small"])))
    return path
