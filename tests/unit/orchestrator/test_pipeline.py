"""The decode loop, with a stand-in for the decoder."""

from typing import Any

import numpy as np
import pytest

from orchestrator.cache import EMBEDDING_SHAPE, Entry
from orchestrator.embeddings import EncodedImage
from orchestrator.pipeline import DecoderError, Pipeline, prefetch
from orchestrator.prompts import mask_inputs
from orchestrator.stages import Stages

STAGES = Stages(lambda *_: None)
IMAGE = EncodedImage("id", "id", Entry(np.zeros(EMBEDDING_SHAPE, np.float16), (480, 640), b""), 10**6, STAGES)


class Decoder:
    """Returns given masks and scores, or numbers the prompts of all runs."""

    def __init__(self, masks: np.ndarray | None = None, scores: np.ndarray | None = None) -> None:
        self.given = (masks, scores)
        self.runs: list[dict[str, Any]] = []

    def __call__(self, inputs: dict[str, Any], outputs: list[str]) -> list[Any]:
        before = sum(len(run["point_labels"]) for run in self.runs)
        self.runs.append({**inputs, "outputs": outputs})
        if self.given[0] is not None:
            return list(self.given)
        count = len(inputs["point_labels"])
        masks = np.zeros((count, 4 if outputs[0] == "low_res_masks" else 1, 256, 256), np.float32)
        return [masks, np.repeat(before + np.arange(count, dtype=np.float32), 4).reshape(count, 4)]


def decode(decoder: Decoder, count: int = 2, points: int = 1, *, candidates: bool = False, batch: int = 8) -> list[Any]:
    pipeline = Pipeline(decoder, None, STAGES, {}, {}, 0, batch)  # type: ignore[arg-type]
    coords, labels = np.zeros((count, points, 2), np.float32), np.ones((count, points), np.int32)
    return list(pipeline.decode(IMAGE, coords, labels, *mask_inputs(None, None, count), candidates=candidates))


@pytest.mark.parametrize("candidates", [False, True], ids=["single", "candidates"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["scores", "masks"])
def test_decoder_outputs_that_are_not_finite_are_an_error(value, where, candidates):
    masks, scores = np.zeros((2, 4 if candidates else 1, 256, 256), np.float32), np.zeros((2, 4), np.float32)
    if where == "scores":
        scores[1, 3 if candidates else 0] = value
    else:
        masks[1, -1, 7, 9] = value
    with pytest.raises(DecoderError, match="expected finite logits and scores"):
        decode(Decoder(masks, scores), candidates=candidates)


def test_unused_decoder_outputs_need_not_be_finite():
    masks, scores = np.zeros((2, 1, 256, 256), np.float32), np.full((2, 4), np.nan, np.float32)
    scores[:, 0] = 0
    assert [(logits.shape, score.tolist()) for logits, score in decode(Decoder(masks, scores))] == [
        ((1, 256, 256), [0.0])
    ] * 2


@pytest.mark.parametrize(
    ("candidates", "sizes", "output"),
    [(False, [8, 8, 4], "single_masks"), (True, [4, 4, 4, 4, 4], "low_res_masks")],
    ids=["single", "candidates"],
)
def test_prompts_are_decoded_in_order_in_bounded_batches(candidates, sizes, output):
    decoder = Decoder()
    answers = decode(decoder, count=20, candidates=candidates)
    assert [len(run["point_labels"]) for run in decoder.runs] == sizes
    assert {run["outputs"][0] for run in decoder.runs} == {output}
    assert [score[0] for _, score in answers] == list(range(20))
    assert {len(score) for _, score in answers} == {3 if candidates else 1}


def test_prefetch_raises_the_error_of_a_step_in_its_place():
    results = prefetch(lambda step: 1 / step, [2, 1, 0, 4])
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)
