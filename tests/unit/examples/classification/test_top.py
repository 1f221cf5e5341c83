import numpy as np
import pytest

from tests.unit.examples.models import load

top = load("classification", "classification_labels", "classification_top")
LOGITS = np.array([[0, 3, 1, 3], [500, 0, -500, 499]], np.float32)


def test_best_classes_come_first_and_ties_by_index():
    indices, scores = top.top_classes(LOGITS, np.array([[3], [3]], np.int32))
    assert indices.tolist() == [[1, 3, 2], [0, 3, 1]]
    weights = np.exp(LOGITS[0])
    np.testing.assert_allclose(scores[0], weights[[1, 3, 2]] / weights.sum(), rtol=1e-5)
    np.testing.assert_allclose(scores[1], [0.731, 0.269, 0], atol=1e-3)
    assert scores.dtype == np.float32


def test_scores_of_all_classes_sum_to_one():
    _, scores = top.top_classes(LOGITS, np.array([[4], [4]], np.int32))
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([0, 2], "expected from 1 to 4, got 0"),
        ([-3, 9], "expected from 1 to 4, got -3"),
        ([2, 5], "expected from 1 to 4, got 5"),
        ([1, 2], "expected the same for all images of a request, got 1 and 2"),
    ],
    ids=["none", "below and above", "above", "different"],
)
def test_invalid_top_k_is_rejected(counts, message):
    with pytest.raises(top.InvalidInput, match=message):
        top.top_classes(LOGITS, np.array(counts, np.int32)[:, None])
