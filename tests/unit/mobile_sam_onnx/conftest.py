from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from mobile_sam_onnx.architecture import Architecture, random_state
from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.model import build_decoder, build_encoder
from tests.unit.mobile_sam_onnx.file_server import Server, serving_weights

Arrays = dict[str, npt.NDArray[Any]]

SMALL = Architecture(
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


class Runnable(Protocol):
    def __call__(self, **inputs: npt.NDArray[Any]) -> list[npt.NDArray[Any]]: ...


def session(model: Any, *outputs: str) -> Runnable:
    """Load an ONNX model in ONNX Runtime; it computes these outputs, by default all but the single masks."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    every = [output.name for output in runtime.get_outputs() if output.name != "single_masks"]

    def run(**inputs: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        answers: list[npt.NDArray[Any]] = runtime.run(outputs or every, inputs)
        return answers

    return run


@pytest.fixture(scope="session")
def run_model() -> Callable[..., Runnable]:
    return session


@pytest.fixture(scope="session")
def small_state() -> Mapping[str, npt.NDArray[np.generic]]:
    return random_state(SMALL)


@pytest.fixture(scope="session")
def small_decoder(small_state: Arrays) -> Runnable:
    return session(build_decoder(small_state))


@pytest.fixture(scope="session")
def reference_state(shared: Path) -> Arrays:
    return load_checkpoint(shared / "reference/mobile_sam_seed7.pt")


@pytest.fixture(scope="session")
def reference_encoder(reference_state: Arrays) -> Runnable:
    return session(build_encoder(reference_state))


@pytest.fixture(scope="session")
def reference_decoder(reference_state: Arrays) -> Runnable:
    return session(build_decoder(reference_state))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving_weights() as running:
        yield running
