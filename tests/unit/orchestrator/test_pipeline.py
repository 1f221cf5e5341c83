"""The decode loop, with a stand-in for the decoder: runs of it, and checks of prompts."""

from typing import Any

import numpy as np
import pytest

from orchestrator.cache import CachedImage
from orchestrator.embeddings import EncodedImage
from orchestrator.networks import DecoderError
from orchestrator.pipeline import (
    Pipeline,
    Prompts,
    batches,
    check_inside,
    clip,
    count_points,
    extents,
    prefetch,
)
from orchestrator.problems import Rejected
from orchestrator.stages import Stages
from orchestrator.tensors import NO_POINT

STAGES = Stages(lambda *_: None)
IMAGE = EncodedImage(
    "id",
    "id",
    CachedImage({"image_embeddings": np.zeros(1, np.float16)}, (480, 640), b""),
    10**6,
    STAGES,
)


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


def decode(
    decoder: Decoder, count: int = 2, *earlier: Any, candidates: bool = False, batch: int = 8
) -> list[Any]:
    pipeline = Pipeline(decoder, None, STAGES, {}, {}, 0, batch)  # type: ignore[arg-type]
    coords, labels = np.zeros((count, 1, 2), np.float32), np.ones((count, 1), np.int32)
    prompts = Prompts(coords, labels, *earlier)
    return list(pipeline.decode(IMAGE, prompts, candidates=candidates))


@pytest.mark.parametrize("candidates", [False, True], ids=["single", "candidates"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_decoder_outputs_that_are_used_must_be_finite(value, candidates):
    used = 3 if candidates else 0
    for place, broken in (("masks", True), ("used score", True), ("other score", False)):
        masks, scores = (
            np.zeros((2, 4 if candidates else 1, 256, 256), np.float32),
            np.zeros((2, 4), np.float32),
        )
        if place == "masks":
            masks[1, -1, 7, 9] = value
        else:
            scores[1, used if place == "used score" else 3 - used] = value
        if broken:
            with pytest.raises(DecoderError, match="expected finite logits and scores"):
                decode(Decoder(masks, scores), candidates=candidates)
        else:
            assert len(decode(Decoder(masks, scores), candidates=candidates)) == 2


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


def points(*xy) -> np.ndarray:
    return np.array([xy], np.float32)


def labels(*values) -> np.ndarray:
    return np.array([values], np.int32)


@pytest.mark.parametrize("xy", [(-1, 5), (5, -0.5), (20.5, 5), (5, 11), (1e6, 1e6)])
def test_point_outside_the_image_is_rejected(xy):
    with pytest.raises(Rejected) as caught:
        check_inside(points((1, 1), xy), labels(1, 1), (10, 20))
    assert caught.value.status == 422
    assert caught.value.errors == [
        {
            "field": "points[0][1]",
            "expected": "a point inside the image: 0 <= x <= 20, 0 <= y <= 10",
            "got": f"[{xy[0]:g}, {xy[1]:g}]",
        }
    ]


def test_rejection_names_the_first_points_outside():
    with pytest.raises(Rejected) as caught:
        check_inside(np.full((3, 100, 2), -1, np.float32), np.ones((3, 100), np.int32), (10, 20))
    assert [error["field"] for error in caught.value.errors] == [
        f"points[0][{index}]" for index in range(20)
    ]


def test_points_on_the_edges_are_accepted_and_absent_ones_are_not_checked():
    check_inside(points((0, 0), (20, 10), (3.5, 9), (-5, -5)), labels(1, 3, 0, NO_POINT), (10, 20))


def test_clipped_points_are_at_the_nearest_place_in_the_image_and_named():
    given = points((3.5, 9), (-1, 5), (25, -0.5), (1e6, 1e6), (0, 10), (-5, -5))
    inside, moved = clip(given, labels(1, 0, 1, 1, 1, NO_POINT), (10, 20))
    assert inside[0, :5].tolist() == [[3.5, 9], [0, 5], [20, 0], [20, 10], [0, 10]]
    assert inside.dtype == np.float32
    assert moved == [(0, 1), (0, 2), (0, 3)]
    check_inside(inside, labels(1, 0, 1, 1, 1, NO_POINT), (10, 20))


@pytest.mark.parametrize(
    ("box", "expected", "moved"),
    [
        pytest.param(
            (-1, -2, 21, 11), [[0, 0], [20, 10]], [(0, 0), (0, 1)], id="larger than the image"
        ),
        pytest.param((5, 2, 20.4, 8), [[5, 2], [20, 8]], [(0, 1)], id="a rounding error"),
        pytest.param((5, 2, 20, 10), [[5, 2], [20, 10]], [], id="inside"),
        pytest.param((-5, 2, 0.5, 8), [[0, 2], [0.5, 8]], [(0, 0)], id="half a pixel is left"),
    ],
)
def test_clipped_box_is_the_part_inside_the_image(box, expected, moved):
    inside, found = clip(points(box[:2], box[2:]), labels(2, 3), (10, 20))
    assert (inside[0].tolist(), found) == ([pytest.approx(corner) for corner in expected], moved)


@pytest.mark.parametrize(
    "box",
    [
        (-9, 2, -1, 8),
        (-9, 2, 0, 8),
        (20, 2, 30, 8),
        (21, 2, 30, 8),
        (5, 10, 9, 12),
        (-9, -9, -1, -1),
    ],
)
def test_box_of_which_nothing_is_left_is_rejected(box):
    given = np.array([[(1, 1), (0, 0), (0, 0)], [(1, 1), box[:2], box[2:]]], np.float32)
    kinds = np.array([[1, NO_POINT, NO_POINT], [1, 2, 3]], np.int32)
    with pytest.raises(Rejected) as caught:
        clip(given, kinds, (10, 20))
    assert caught.value.status == 422
    assert caught.value.errors == [
        {
            "field": "points[1][1]",
            "expected": "a box with a part inside the image of 20 x 10 pixels",
            "got": "[{:g}, {:g}, {:g}, {:g}]".format(*box),
        }
    ]


def test_clipped_point_that_is_no_number_is_still_rejected():
    inside, _ = clip(points((np.nan, 5)), labels(1), (10, 20))
    with pytest.raises(Rejected):
        check_inside(inside, labels(1), (10, 20))


def test_point_outside_the_region_is_rejected_with_its_limits():
    check_inside(points((5, 2), (15, 8)), labels(1, 1), (10, 20), (5, 2, 15, 8))
    with pytest.raises(Rejected, match=r"inside the region: 5 <= x <= 15, 2 <= y <= 8.*\[16, 8\]"):
        check_inside(points((5, 2), (16, 8)), labels(1, 1), (10, 20), (5, 2, 15, 8))


def test_extents_are_the_boxes_around_the_points():
    assert extents(points((1, 9), (4, 2), (0, 0)), labels(1, 0, NO_POINT)).tolist() == [
        [1, 2, 4, 9]
    ]


def test_earlier_masks_go_to_their_objects_unchanged():
    masks, decoder = (
        np.random.default_rng(0).normal(0, 10, (2, 256, 256)).astype(np.float32),
        Decoder(),
    )
    decode(decoder, 4, masks, np.array([3, 1], np.int32), batch=2)
    mask_input, has_mask = (
        np.concatenate([run[name] for run in decoder.runs])
        for name in ("mask_input", "has_mask_input")
    )
    assert mask_input.dtype == has_mask.dtype == np.float32
    assert has_mask.tolist() == [0, 1, 0, 1]
    assert np.array_equal(mask_input[[3, 1], 0], masks)
    assert not mask_input[[0, 2]].any()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([1], [(0, 1)], id="one object"),
        pytest.param([1] * 20, [(0, 8), (8, 16), (16, 20)], id="limit of prompts"),
        pytest.param(
            [1, 1, 514, 1, 1], [(0, 2), (2, 3), (3, 5)], id="object with many points runs alone"
        ),
        pytest.param([100] * 6, [(0, 5), (5, 6)], id="limit of points"),
        pytest.param([514, 514], [(0, 1), (1, 2)], id="objects above the limit of points"),
    ],
)
def test_batches_are_bounded_by_prompts_and_points(counts, expected):
    assert [(part.start, part.stop) for part in batches(counts, 8)] == expected


def test_count_points_ignores_trailing_absent_points():
    assert count_points(np.array([[1, 0, -2], [2, 3, 1], [-2, 1, -2]], np.int32)) == [2, 3, 2]


@pytest.mark.parametrize(
    ("kinds", "mask_objects", "refused"),
    [
        ([[2, 3]], None, None),
        ([[2, 3]], np.zeros(0, np.int32), None),
        ([[1, NO_POINT]], None, ("points[0][0]", "points")),
        ([[2, 3, NO_POINT], [2, 3, 0]], None, ("points[1][2]", "points")),
        ([[2, 3], [2, 3]], np.array([1], np.int32), ("masks[1]", "masks")),
    ],
)
def test_prompts_that_the_weights_do_not_accept_are_refused(kinds, mask_objects, refused):
    boxes_only = Pipeline(None, None, STAGES, {}, {}, 0, 8, accepted=["boxes"])  # type: ignore[arg-type]
    given = np.array(kinds, np.int32), mask_objects
    Pipeline(None, None, STAGES, {}, {}, 0, 8).check_accepted(*given)  # type: ignore[arg-type]
    if refused is None:
        boxes_only.check_accepted(*given)
        return
    with pytest.raises(Rejected) as caught:
        boxes_only.check_accepted(*given)
    field, got = refused
    expected = "boxes, as these weights were trained for nothing else"
    assert caught.value.errors == [{"field": field, "expected": expected, "got": got}]
