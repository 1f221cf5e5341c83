"""Tensors that stay on the device of an engine."""

import numpy as np
import onnxruntime as ort
import pytest

from tests.unit.triton_backends.graphs import write_model, x
from triton_backends.common.onnxruntime_engine import CUDA, Engine, KeptTensors


@pytest.fixture
def copies(monkeypatch) -> list[int]:
    """Sizes of the arrays that are copied to the device."""
    sizes: list[int] = []
    original = ort.OrtValue.ortvalue_from_numpy

    def copy(array, *device):
        sizes.append(array.nbytes)
        return original(array, *device)

    monkeypatch.setattr(ort.OrtValue, "ortvalue_from_numpy", copy)
    return sizes


def test_run_takes_kept_tensors_and_others(tmp_path, copies):
    engine = Engine(write_model(tmp_path), {})
    kept = KeptTensors("cpu", 0)
    for _ in range(3):
        answers = engine.run(kept("a", {"x": x([1, 2], [3, 4])}), ["y", "n"])
        assert [answer.tolist() for answer in answers] == [[[2, 4], [6, 8]], [2, 2]]
    assert copies == [16]
    assert engine.run({"x": x([5])}, ["y"])[0].tolist() == [[10]]


def test_tensors_that_are_not_contiguous_are_copied_in_order(tmp_path):
    engine = Engine(write_model(tmp_path), {})
    turned = x([1, 2], [3, 4]).T
    answers = engine.run(KeptTensors("cpu", 0)("a", {"x": turned}), ["y"])
    assert answers[0].tolist() == [[2, 6], [4, 8]]


def test_tensors_used_last_are_kept_within_the_size(copies):
    kept = KeptTensors("cpu", 0, max_bytes=40)
    tensors = {"x": np.zeros(4, np.float32)}
    for key in ("a", "b", "a", "c", "a", "b"):  # c takes the place of b, b that of c
        kept(key, tensors)
    assert len(copies) == 4
    kept("large", {"x": np.zeros(99, np.float32), "y": np.zeros(1, np.float32)})
    kept("large", tensors)
    assert copies[4:] == [396, 4]
    kept("a", tensors)
    assert copies[6:] == [16]


def test_engine_on_a_gpu_keeps_tensors_there(tmp_path, monkeypatch):
    path = write_model(tmp_path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    monkeypatch.setattr(session, "get_providers", lambda: [CUDA])
    monkeypatch.setattr(ort, "InferenceSession", lambda *_, **__: session)
    monkeypatch.setattr(ort, "preload_dlls", lambda: None, raising=False)
    engine = Engine(path, {}, [(CUDA, {"device_id": "3"})])
    assert engine.keep is not None
    assert (engine.keep._device, engine.keep._device_id) == ("cuda", 3)
    monkeypatch.setattr(session, "get_providers", lambda: ["CPUExecutionProvider"])
    assert Engine(path, {}).keep is None
