"""Check of the engines on the real graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from tests.e2e.server import make_repository
from utils.triton.watchdog import engines
from utils.triton.watchdog.engines import EngineError, check_engines
from utils.triton.watchdog.probes import Probe

TYPES = {"UINT8": np.uint8, "INT32": np.int32, "FP16": np.float16, "FP32": np.float32}


class Graphs:
    """The graphs of a repository; `change` alters an output before it is returned."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self.change: dict[str, Callable[[Any], Any]] = {}

    def run_probe(self, probe: Probe, *_: Any) -> dict[str, bytes]:
        session = ort.InferenceSession(self._repository / probe.model / "1" / "model.onnx")
        feed = {name: np.frombuffer(data, TYPES[kind]).reshape(shape) for name, kind, shape, data in probe.inputs}
        values = zip(probe.outputs, session.run(probe.outputs, feed), strict=True)
        return {name: self.change.get(name, np.asarray)(value).tobytes() for name, value in values}


@pytest.mark.parametrize("weights", ["builtin", "random"])
def test_healthy_engines_pass_their_check(weights, tmp_path, monkeypatch):
    graphs = Graphs(make_repository(tmp_path / "model_repository", weights))
    monkeypatch.setattr(engines, "run_probe", graphs.run_probe)
    check_engines({}, 0, 1.0)


@pytest.mark.parametrize(
    ("output", "change", "message"),
    [
        pytest.param("image_embeddings", np.zeros_like, "same embedding", id="constant-embedding"),
        pytest.param("low_res_masks", lambda logits: -np.abs(logits), "no mask", id="empty-masks"),
        pytest.param("low_res_masks", lambda logits: logits * np.float32(np.nan), "no mask", id="not-a-number"),
    ],
)
def test_broken_engines_do_not_pass_their_check(builtin_repository, monkeypatch, output, change, message):
    graphs = Graphs(builtin_repository)
    monkeypatch.setattr(engines, "run_probe", graphs.run_probe)
    graphs.change[output] = change
    with pytest.raises(EngineError, match=message):
        check_engines({}, 0, 1.0)
