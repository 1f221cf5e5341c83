"""Automatic masks: grid points, duplicates and progress."""

import asyncio
import json
import math
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest

from orchestrator.costs import max_batch_points
from tests import fake_segmenter
from tests.fake_segmenter import FakeSegmenter
from utils.api.requests import EverythingRequest
from utils.errors import (
    AnswerTooLarge,
    InferenceTimeout,
    InferenceUnavailable,
    InvalidRequest,
    NotLoaded,
    Stopping,
)
from utils.inference.everything import Record, Step, box_nms, crop_boxes, everything, grid
from utils.inference.request import ImageSource

FILE = ImageSource(b"file", None, "me")
MAX_BYTES = 10_000
IMAGE = {**fake_segmenter.IMAGE, "width": 100, "height": 80}
record = partial(fake_segmenter.record, crop=(0, 0, 100, 80))


def segmenter_of(*batches: list[Record] | Exception) -> FakeSegmenter:
    """Return a segmenter for an image of 100 x 80 pixels with these records, or errors."""
    return FakeSegmenter(*batches, image=IMAGE)


def steps_of(segmenter: FakeSegmenter, image: ImageSource = FILE, **fields: Any) -> list[Step]:
    async def collect() -> list[Step]:
        request = EverythingRequest(**fields)
        steps = everything(segmenter, image, request, request.model_version, MAX_BYTES)
        return [step async for step in steps]

    return asyncio.run(collect())


def boxes_of(segmenter: FakeSegmenter, **fields: Any) -> list[list[int]]:
    return [mask["bbox"] for mask in steps_of(segmenter, **fields)[-1]["result"]["masks"]]


def test_crop_boxes_equal_those_of_segment_anything():
    # Layer 1: overlap int(512/1500 * 683 * 2/2) = 233, sides ceil((233 + 1024)/2) = 629 and
    # ceil((233 + 683)/2) = 458. Layer 2: overlap int(512/1500 * 683 * 2/4) = 116, sides ceil((348 +
    # 1024)/4) = 343 and ceil((348 + 683)/4) = 258.
    boxes = crop_boxes((683, 1024), 2, 512 / 1500)
    assert boxes[:5] == [
        ((0, 0, 1024, 683), 0),
        ((0, 0, 629, 458), 1),
        ((0, 225, 629, 683), 1),
        ((396, 0, 1024, 458), 1),
        ((396, 225, 1024, 683), 1),
    ]
    assert boxes[5:] == [
        ((x, y, min(x + 343, 1024), min(y + 258, 683)), 2)
        for x in (0, 227, 454, 681)
        for y in (0, 142, 284, 426)
    ]


@pytest.mark.parametrize(
    "size_hw", [(1, 1), (1, 9), (7, 3), (13, 200), (683, 1024), (1000, 1000)], ids=str
)
@pytest.mark.parametrize("ratio", [0, 512 / 1500, 1])
def test_crops_of_each_layer_cover_exactly_the_image(size_hw, ratio):
    height, width = size_hw
    covered = np.zeros((4, height, width), bool)
    for (x0, y0, x1, y1), layer in crop_boxes(size_hw, 3, ratio):
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
        covered[layer, y0:y1, x0:x1] = True
    assert covered.all()


def test_grid_points_are_the_centers_of_equal_cells():
    assert grid((10, 20, 14, 22), 2).tolist() == [[11, 20.5], [13, 20.5], [11, 21.5], [13, 21.5]]
    assert grid((0, 0, 3, 5), 1).tolist() == [[1.5, 2.5]]
    assert grid((0, 0, 3, 5), 7).dtype == np.float32


@pytest.mark.parametrize("threshold", [0, 0.25, 0.5, 0.75, 1])
@pytest.mark.parametrize("seed", range(5))
def test_box_nms_drops_overlaps_of_lower_priority(seed, threshold):
    random = np.random.default_rng(seed)
    corners, sides = random.integers(0, 12, (80, 2)), random.integers(1, 12, (80, 2))
    boxes = np.concatenate([corners, corners + sides], axis=1)
    found = [{"box": box.tolist(), "number": number} for number, box in enumerate(boxes)]
    priority = random.integers(0, 10, 80).astype(float).tolist()
    wanted: list[int] = []
    for number in sorted(range(80), key=lambda each: -priority[each]):
        if all(iou(boxes[number], boxes[other]) <= threshold for other in wanted):
            wanted.append(number)
    assert [record["number"] for record in box_nms(found, priority, threshold)] == wanted
    assert (len(wanted) < len(found)) == (threshold < 1)


def iou(one, other) -> float:
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    shared, areas = (
        np.prod(np.clip(high - low, 0, None)),
        [np.prod(box[2:] - box[:2]) for box in (one, other)],
    )
    return float(shared / (sum(areas) - shared))


def test_all_clicks_of_the_grid_are_sent_in_batches():
    segmenter = segmenter_of()
    steps_of(segmenter, points_per_side=5)
    batches = [batch.inputs["point_coords"] for _, batch in segmenter.batches]
    assert [len(batch) for batch in batches] == [16, 9]
    assert np.concatenate(batches).tolist() == grid((0, 0, 100, 80), 5).tolist()


@pytest.mark.parametrize(
    ("size_hw", "fields", "expected"),
    [
        pytest.param((1200, 1800), {}, [16] * 4, id="photo"),
        pytest.param(
            (5000, 5000),
            {},
            [max_batch_points(25_000_000, 25_000_000, remove_small_regions=False)],
            id="large",
        ),
        pytest.param((5000, 5000), {"min_mask_region_area": 100}, [1] * 64, id="large, cleaned"),
        pytest.param(
            (20_000, 5000), {"min_mask_region_area": 100}, [1] * 64, id="too large for one point"
        ),
    ],
)
def test_batches_of_large_images_have_as_many_points_as_fit(size_hw, fields, expected):
    segmenter = FakeSegmenter(image={**IMAGE, "height": size_hw[0], "width": size_hw[1]})
    steps = steps_of(segmenter, points_per_side=8, **fields)
    counts = [len(batch.inputs["point_coords"]) for _, batch in segmenter.batches]
    assert counts[: len(expected)] == expected
    assert sum(counts) == 64
    assert steps[-1]["total"] == len(counts)


def test_each_layer_has_its_own_crops_and_grid():
    segmenter = segmenter_of()
    steps = steps_of(
        segmenter,
        points_per_side=8,
        crop_n_layers=2,
        crop_n_points_downscale_factor=4,
        crop_overlap_ratio=0.0,
    )
    assert [(step["done"], step["total"]) for step in steps] == [(done, 24) for done in range(25)]
    batches = [
        (batch.options["crop_box"], len(batch.inputs["point_coords"]))
        for _, batch in segmenter.batches
    ]
    assert batches[:4] == [((0, 0, 100, 80), 16)] * 4
    crops = [(0, 0, 50, 40), (0, 40, 50, 80), (50, 0, 100, 40), (50, 40, 100, 80)]
    assert batches[4:8] == [(crop, 4) for crop in crops]
    assert [count for _, count in batches[8:]] == [1] * 16
    assert segmenter.batches[4][1].inputs["point_coords"].tolist() == [
        [12.5, 10],
        [37.5, 10],
        [12.5, 30],
        [37.5, 30],
    ]


def test_crops_and_grid_of_a_region_lie_in_it():
    segmenter = FakeSegmenter(
        image={**IMAGE, "region": [100, 40, 200, 120], "width": 400, "height": 300}
    )
    steps = steps_of(segmenter, points_per_side=2, crop_n_layers=1, crop_overlap_ratio=0.0)
    crops = [
        (100, 40, 200, 120),
        (100, 40, 150, 80),
        (100, 80, 150, 120),
        (150, 40, 200, 80),
        (150, 80, 200, 120),
    ]
    assert [batch.options["crop_box"] for _, batch in segmenter.batches] == crops
    grids = [
        [[125, 60], [175, 60], [125, 100], [175, 100]],
        [[112.5, 50], [137.5, 50], [112.5, 70], [137.5, 70]],
    ]
    assert [batch.inputs["point_coords"].tolist() for _, batch in segmenter.batches[:2]] == grids
    assert steps[-1]["result"]["region"] == [100, 40, 200, 120]


@pytest.mark.parametrize(
    "thresholds",
    [{}, {"pred_iou_thresh": 0.5, "stability_score_thresh": 0.25}],
    ids=["of the model", "of the request"],
)
def test_thresholds_reach_the_model(thresholds):
    segmenter = segmenter_of()
    fields = {"stability_score_offset": 2.0, "min_mask_region_area": 7, **thresholds}
    steps_of(segmenter, points_per_side=1, model_version=4, **fields)
    ((_, batch),) = segmenter.batches
    assert batch.options == {"crop_box": (0, 0, 100, 80), **fields}
    assert (batch.model_version, batch.point_paths) == (4, (("points_per_side",),))


@pytest.mark.parametrize("image", [FILE, ImageSource(None, "an id")], ids=["a file", "an id"])
def test_batches_name_the_image_by_its_id(image):
    segmenter = segmenter_of()
    steps_of(segmenter, image, points_per_side=5)
    assert segmenter.embeds == [image]
    assert [found for found, _ in segmenter.batches] == [replace(image, image_id="the id")] * 2


def test_errors_of_a_batch_are_not_retried():
    segmenter = segmenter_of([], InferenceTimeout("late"))
    with pytest.raises(InferenceTimeout, match="late"):
        steps_of(segmenter, points_per_side=5)
    assert len(segmenter.batches) == 2


@pytest.fixture
def restarting(monkeypatch):
    """Make the image unavailable after the first answer of `embed` for some attempts; return a
    function for that.
    """
    monkeypatch.setattr("utils.inference.everything.RETRY_INTERVAL_S", 0.001)
    monkeypatch.setattr("utils.inference.everything.MAX_RESTART_S", 0.01)

    def for_attempts(segmenter: FakeSegmenter, count: int) -> FakeSegmenter:
        answer = json.dumps(IMAGE)
        answers = [answer, *[InferenceUnavailable("starting")] * count, answer]
        monkeypatch.setattr(segmenter, "embed", AsyncMock(side_effect=answers))
        return segmenter

    return for_attempts


def test_a_batch_waits_for_a_restart_of_the_model(restarting):
    found = segmenter_of(
        [record((0, 0, 5, 5))], InferenceUnavailable("died"), [record((8, 8, 9, 9))]
    )
    assert boxes_of(restarting(found, 3), points_per_side=5) == [[0, 0, 5, 5], [8, 8, 1, 1]]


@pytest.mark.parametrize(
    ("attempts", "batches"), [(20, 1), (0, 2)], ids=["no restart", "dies of the batch"]
)
def test_a_batch_waits_for_a_restart_once(restarting, attempts, batches):
    segmenter = segmenter_of(InferenceUnavailable("died"), InferenceUnavailable("died"), [])
    with pytest.raises(InferenceUnavailable, match="died"):
        steps_of(restarting(segmenter, attempts), points_per_side=1)
    assert len(segmenter.batches) == batches


def test_duplicate_with_the_higher_score_is_kept_across_batches():
    alike = [record((0, 0, 10, 10), 0.8)], [record((0, 0, 10, 5), 0.9)]  # an IoU of 0.5
    assert boxes_of(segmenter_of(*alike), points_per_side=5, box_nms_thresh=0.49) == [[0, 0, 10, 5]]
    assert len(boxes_of(segmenter_of(*alike), points_per_side=5, box_nms_thresh=0.5)) == 2


def test_duplicate_from_the_smaller_crop_is_kept():
    found = [[record((0, 0, 10, 10), 0.99)], [record((0, 0, 10, 9), 0.5, crop=(0, 0, 50, 40))]]
    one_layer = {"points_per_side": 1, "crop_n_layers": 1}
    assert boxes_of(segmenter_of(*found), **one_layer) == [[0, 0, 10, 9]]
    assert len(boxes_of(segmenter_of(*found), **one_layer, crop_nms_thresh=1.0)) == 2


CLEANED = [
    record((0, 0, 40, 40), 0.9, bbox=(0, 0, 10, 10), changed=True),
    record((0, 0, 10, 10), 0.5),
]
"""Two masks whose boxes became equal when the better one lost an island."""


def test_unmodified_mask_is_kept_when_cleaning_makes_duplicates():
    result = steps_of(segmenter_of(CLEANED), points_per_side=1, min_mask_region_area=5)[-1][
        "result"
    ]
    assert [mask["predicted_iou"] for mask in result["masks"]] == [0.5]
    assert not {"box", "changed"} & set(result["masks"][0])


@pytest.mark.parametrize("between", ["box_nms_thresh", "crop_nms_thresh"])
def test_duplicates_made_by_cleaning_are_kept_at_a_threshold_of_1(between):
    fields: dict[str, Any] = {"min_mask_region_area": 5, between: 1.0}
    assert len(boxes_of(segmenter_of(CLEANED), points_per_side=1, **fields)) == 2


def test_unloaded_version_restarts_with_the_newest():
    segmenter = segmenter_of(
        [record((0, 0, 9, 9))], NotLoaded("gone"), [record((0, 0, 5, 5))], [record((8, 8, 9, 9))]
    )
    steps = steps_of(segmenter, points_per_side=5)  # two batches
    assert [step["done"] for step in steps] == [0, 1, 0, 1, 2]
    assert [mask["bbox"] for mask in steps[-1]["result"]["masks"]] == [[0, 0, 5, 5], [8, 8, 1, 1]]
    assert len(segmenter.embeds) == 2


def test_unloaded_requested_version_is_an_invalid_request():
    segmenter = segmenter_of(NotLoaded("gone"))
    with pytest.raises(InvalidRequest) as caught:
        steps_of(segmenter, points_per_side=1, model_version=7)
    assert caught.value.errors[0].field == "model_version"
    assert segmenter.asked_version == 7


def test_no_loaded_version_raises_not_loaded():
    with pytest.raises(NotLoaded):
        steps_of(segmenter_of(NotLoaded("gone"), NotLoaded("gone")), points_per_side=1)


def test_too_many_grid_points_are_rejected_before_any_batch():
    segmenter = segmenter_of()
    with pytest.raises(InvalidRequest) as caught:
        steps_of(segmenter, points_per_side=64, crop_n_layers=2)
    (error,) = caught.value.errors
    assert (error.field, error.got) == ("points_per_side", str(21 * 64 * 64))
    assert error.expected == "at most 20000 points in all grids together"
    assert not segmenter.batches


def test_records_above_the_response_limit_are_rejected_early():
    batch = [record((0, 0, 5, 5))] * 10
    segmenter = segmenter_of(*[batch] * 10)
    with pytest.raises(AnswerTooLarge, match="an answer of at most 10000 bytes"):
        steps_of(segmenter, points_per_side=16)
    assert len(segmenter.batches) == 3


def test_batches_run_at_once_and_keep_their_order():
    segmenter, running, most = segmenter_of(), 0, 0
    segmenter.parallel_batches = 3

    async def records(image: ImageSource, batch: Any) -> dict[str, Any]:
        nonlocal running, most
        running, number = running + 1, len(segmenter.batches)
        segmenter.batches.append((image, batch))
        most = max(most, running)
        await asyncio.sleep(0.05 * (number % 2 == 0))  # every second one overtakes the one before
        running -= 1
        return {"engine": {}, "masks": [record((8 * number, 0, 8 * number + 4, 4))]}

    segmenter.records = records  # type: ignore[method-assign]
    assert [x for x, *_ in boxes_of(segmenter, points_per_side=12)] == [
        8 * number for number in range(9)
    ]
    assert most == 3


@pytest.mark.parametrize(
    ("left_s", "batches"),
    [
        pytest.param(math.inf, 3, id="service-goes-on"),
        pytest.param(20.0, 3, id="enough"),
        pytest.param(19.9, 1, id="too-little"),
    ],
)
def test_work_that_a_stopping_service_would_not_wait_for_ends_after_a_batch(
    monkeypatch, left_s, batches
):
    segmenter = segmenter_of()
    # 10 s for each batch.
    monkeypatch.setattr("time.monotonic", lambda: 10.0 * len(segmenter.batches))
    fields: dict[str, Any] = {"points_per_side": 6}
    request = EverythingRequest(**fields)

    async def steps() -> list[Step]:
        progress = everything(segmenter, FILE, request, None, MAX_BYTES, time_left_s=lambda: left_s)
        return [step async for step in progress]

    if batches == 3:
        assert asyncio.run(steps())[-1]["done"] == 3
    else:
        with pytest.raises(Stopping, match="would not finish this request in time"):
            asyncio.run(steps())
    assert len(segmenter.batches) == batches


def test_work_whose_batches_are_all_done_is_finished_although_the_service_waits_no_longer():
    segmenter = segmenter_of()
    fields: dict[str, Any] = {"points_per_side": 1}
    request = EverythingRequest(**fields)

    async def steps() -> list[Step]:
        progress = everything(segmenter, FILE, request, None, MAX_BYTES, time_left_s=lambda: -1.0)
        return [step async for step in progress]

    assert "result" in asyncio.run(steps())[-1]


def test_batches_beside_one_that_fails_are_cancelled():
    segmenter, ended = segmenter_of(), list[str]()
    segmenter.parallel_batches = 3

    async def records(image: ImageSource, batch: Any) -> dict[str, Any]:
        segmenter.batches.append((image, batch))
        if len(segmenter.batches) == 2:
            raise InferenceTimeout("late")
        try:
            await asyncio.sleep(0.05 if len(segmenter.batches) == 1 else 60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return {"engine": {}, "masks": []}

    segmenter.records = records  # type: ignore[method-assign]
    with pytest.raises(InferenceTimeout):
        steps_of(segmenter, points_per_side=12)
    assert ended == ["cancelled"]  # the next one had not begun
