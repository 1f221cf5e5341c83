"""Checks of the decoder's outputs, with a stand-in for `triton_python_backend_utils`."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import numpy as np
import pytest

from orchestrator.cache import EMBEDDING_SHAPE, Entry
from orchestrator.embeddings import EncodedImage
from orchestrator.prompts import mask_inputs
from orchestrator.stages import Stages


class TritonModelException(Exception):
    pass


@pytest.fixture
def models(monkeypatch) -> Any:
    """`Models` without settings; a test sets the decoder as `_call`."""
    utils: Any = types.ModuleType("triton_python_backend_utils")
    utils.TritonModelException = TritonModelException
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    monkeypatch.delitem(sys.modules, "orchestrator.triton_io", raising=False)
    module = importlib.import_module("orchestrator.triton_io")
    monkeypatch.delitem(sys.modules, "orchestrator.triton_io")
    made = module.Models.__new__(module.Models)
    made._decoder_batch, made._stages = 8, Stages(lambda *_: None)
    return made


@pytest.fixture
def image() -> EncodedImage:
    return EncodedImage(
        "id", "id", Entry(np.zeros(EMBEDDING_SHAPE, np.float16), (480, 640), b""), 10**6, Stages(lambda *_: None)
    )


def decode(models: Any, image: EncodedImage, masks: np.ndarray, scores: np.ndarray, *, candidates: bool) -> list[Any]:
    models._call = lambda model, inputs, outputs: [masks, scores]
    points, labels = np.zeros((2, 1, 2), np.float32), np.ones((2, 1), np.int32)
    return list(models.decode(image, points, labels, *mask_inputs(None, None, 2), candidates=candidates))


@pytest.mark.parametrize("candidates", [False, True], ids=["single", "candidates"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["scores", "masks"])
def test_decoder_outputs_that_are_not_finite_are_an_error(models, image, value, where, candidates):
    masks, scores = np.zeros((2, 4 if candidates else 1, 256, 256), np.float32), np.zeros((2, 4), np.float32)
    if where == "scores":
        scores[1, 3 if candidates else 0] = value
    else:
        masks[1, -1, 7, 9] = value
    with pytest.raises(TritonModelException, match="expected finite logits and scores"):
        decode(models, image, masks, scores, candidates=candidates)


def test_unused_decoder_outputs_need_not_be_finite(models, image):
    masks, scores = np.zeros((2, 1, 256, 256), np.float32), np.zeros((2, 4), np.float32)
    scores[:, 1:] = np.nan
    answers = decode(models, image, masks, scores, candidates=False)
    assert [(logits.shape, score.tolist()) for logits, score in answers] == [((1, 256, 256), [0.0])] * 2
