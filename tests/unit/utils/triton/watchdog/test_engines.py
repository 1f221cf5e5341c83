"""Check of the engines on the real graphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from utils.triton.watchdog.probes import EngineError, LocalTriton, check_engines


@pytest.fixture(params=["model.onnx", "gpu.onnx"])
def run(request, builtin_repository: Path, monkeypatch) -> dict[str, Callable[[Any], Any]]:
    """Run the graphs in place of Triton; return the changes of their outputs, by name."""
    changes: dict[str, Callable[[Any], Any]] = {}

    def infer(
        _: LocalTriton, model: str, inputs: Any, outputs: list[str], *__: Any
    ) -> dict[str, Any]:
        session = ort.InferenceSession(builtin_repository / model / "1" / request.param)
        values = zip(outputs, session.run(outputs, inputs), strict=True)
        return {name: changes.get(name, np.asarray)(value) for name, value in values}

    def tensors(_: LocalTriton, model: str, *__: Any) -> dict[str, Any]:
        session = ort.InferenceSession(builtin_repository / model / "1" / request.param)
        return {each.name: each.shape for each in (*session.get_inputs(), *session.get_outputs())}

    monkeypatch.setattr(LocalTriton, "infer", infer)
    monkeypatch.setattr(LocalTriton, "tensors", tensors)
    monkeypatch.setattr(LocalTriton, "frame_side", lambda *_: 1024)
    return changes


def test_healthy_engines_pass_their_check(run):
    check_engines(LocalTriton(0), 1.0)


@pytest.mark.parametrize(
    ("output", "change", "message"),
    [
        pytest.param("image_embeddings", np.zeros_like, "same embedding", id="constant-embedding"),
        pytest.param("low_res_masks", lambda logits: -np.abs(logits), "no mask", id="empty-masks"),
        pytest.param(
            "low_res_masks",
            lambda logits: logits * np.float32(np.nan),
            "no mask",
            id="not-a-number",
        ),
    ],
)
def test_broken_engines_do_not_pass_their_check(run, output, change, message):
    run[output] = change
    run["mask_logits"] = run.get("low_res_masks", np.asarray)
    with pytest.raises(EngineError, match=message):
        check_engines(LocalTriton(0), 1.0)
