"""Estimated cost of an answer."""

import re
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from orchestrator import costs
from orchestrator.costs import PROMPT_S, Workload
from orchestrator.masks import MaskPart, PixelMask
from orchestrator.pictures import Picture
from orchestrator.problems import Rejected
from utils.api.requests import MaskFormat
from utils.settings import Settings

BYTES = Settings().max_answer_bytes
LARGEST = (5000, 5000)
PHOTO = (1200, 1800)


def work(
    objects: int = 0, masks: int = 0, mask_format: str = "rle", style: str = "none", **options: Any
) -> Workload:
    return Workload(
        objects=objects, masks=masks or objects, mask_format=mask_format, style=style, **options
    )


CLICK = work(1, 1, "json", "overlay")


def refusal(
    workload: Workload, size_hw: tuple[int, int], max_bytes: int = BYTES
) -> Rejected | None:
    try:
        workload.check(size_hw, max_bytes)
    except Rejected as rejected:
        return rejected
    return None


@pytest.mark.parametrize("style", costs.DRAW_NS)
def test_ordinary_requests_are_accepted(style):
    for mask_format in get_args(MaskFormat):
        assert refusal(work(1, 1, mask_format, style, low_res=True), LARGEST) is None
    assert refusal(work(256, 768), PHOTO) is None
    assert refusal(work(256, 256, "png"), PHOTO) is None


@pytest.mark.parametrize(
    ("workload", "size_hw", "slug"),
    [
        pytest.param(work(256, 768, "polygon"), LARGEST, "too-much-work", id="polygons"),
        pytest.param(work(256, 768), LARGEST, "too-much-work", id="rle"),
        pytest.param(
            work(256, 256, "rle", "overlay"), LARGEST, "too-much-work", id="overlay of many objects"
        ),
        pytest.param(
            work(100, remove_small_regions=True), LARGEST, "too-much-work", id="small regions"
        ),
        pytest.param(
            work(256, 768, low_res=True), (10, 10), "answer-too-large", id="low-resolution masks"
        ),
        pytest.param(work(4, 4, "json"), LARGEST, "answer-too-large", id="json"),
        pytest.param(work(7, 7, "npy"), LARGEST, "answer-too-large", id="npy"),
        pytest.param(work(6, 6, "npy", document=True), LARGEST, "answer-too-large", id="base64"),
        pytest.param(work(60, 60, "png"), LARGEST, "answer-too-large", id="png"),
    ],
)
def test_costly_request_is_rejected_with_the_number_that_fits(workload, size_hw, slug):
    rejected = refusal(workload, size_hw)
    assert rejected is not None
    assert (rejected.status, rejected.slug) == (422, slug)
    (error,) = rejected.errors
    found = re.match(
        rf"at most (\d+) objects as {workload.mask_format} with picture {workload.style} on a",
        error["expected"],
    )
    assert found
    fits, each = int(found[1]), workload.masks // workload.objects
    assert error["got"].startswith(f"{workload.objects}: ")
    assert refusal(replace(workload, objects=fits, masks=fits * each), size_hw) is None
    assert (
        refusal(replace(workload, objects=fits + 1, masks=(fits + 1) * each), size_hw) is not None
    )


def test_rejection_says_0_when_no_object_fits():
    rejected = refusal(CLICK, LARGEST, max_bytes=10**6)
    assert rejected is not None
    assert rejected.errors[0]["expected"].startswith("at most 0 objects as json")


def test_large_requests_are_costly_and_clicks_on_photographs_are_not():
    pixels = PHOTO[0] * PHOTO[1]
    assert not CLICK.is_costly(pixels)
    assert CLICK.is_costly(4000 * 3000)
    assert work(64).is_costly(pixels)
    assert not work().is_costly(4000 * 3000)
    assert work().is_costly(25_000_000)
    assert not work(2, points=2).is_costly(100)
    assert work(2, points=512).is_costly(100)


def test_thirteen_objects_are_costly_on_any_image():
    assert costs.MIN_COSTLY_OBJECTS == 13
    assert work(13).is_costly(1, new=False)
    assert not work(12).is_costly(1, new=False)


@pytest.mark.parametrize("mask_format", get_args(MaskFormat))
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_answers_are_not_larger_than_estimated(mask_format, share):
    size_hw = (211, 307)
    masks = np.random.default_rng(1).random((3, *size_hw)) < share
    part = MaskPart(mask_format, size_hw, 3)
    picture = Picture(np.random.default_rng(2).integers(0, 256, (*size_hw, 3), np.uint8), "cutout")
    added = sum(part.add(PixelMask(mask)) for mask in masks)
    counted = added if mask_format in ("rle", "polygon") else 0
    estimated = work(3, 3, mask_format, "cutout").answer_bytes(size_hw[0] * size_hw[1])
    overhead = 2000  # brackets, file headers, compression of noise
    assert len(b"".join(part.encode())) + len(picture.encode()) <= estimated + counted + overhead


def test_default_timeout_exceeds_the_largest_accepted_work():
    assert Settings().timeout_s(0) > 2 * costs.MAX_WORK_S


@pytest.mark.parametrize(
    ("options", "field"),
    [({"mask_format": "bmp"}, "mask_format"), ({"style": "x"}, "segmented_image")],
)
def test_unknown_format_or_style_is_an_error(options, field):
    with pytest.raises(ValueError, match=f"{field} must be one of .*, got '"):
        work(1, **options)


@pytest.mark.parametrize(
    "remove_small_regions", [False, True], ids=["as they are", "small regions removed"]
)
@pytest.mark.parametrize("crop_hw", [LARGEST, (2000, 3000)], ids=["the image", "a crop"])
def test_batch_of_grid_points_is_rejected_with_the_number_that_fits(crop_hw, remove_small_regions):
    fits = costs.max_batch_points(
        LARGEST[0] * LARGEST[1], crop_hw[0] * crop_hw[1], remove_small_regions=remove_small_regions
    )
    assert fits >= 1
    costs.check_batch(fits, LARGEST, crop_hw, remove_small_regions=remove_small_regions)
    with pytest.raises(Rejected) as caught:
        costs.check_batch(fits + 1, LARGEST, crop_hw, remove_small_regions=remove_small_regions)
    assert (caught.value.status, caught.value.slug) == (422, "too-much-work")
    (error,) = caught.value.errors
    assert (error["field"], error["got"]) == ("point_coords", str(fits + 1))
    assert error["expected"].startswith(
        f"at most {fits} points on this crop of a 5000 x 5000 image"
    )


def test_image_too_large_for_one_grid_point_is_rejected_with_the_pixels_that_fit():
    with pytest.raises(Rejected) as caught:
        costs.check_batch(1, (9000, 9000), (9000, 9000), remove_small_regions=True)
    (error,) = caught.value.errors
    assert error["field"] == "input_image"
    found = re.match(
        r"at most (\d+) pixels with min_mask_region_area for one point", error["expected"]
    )
    assert found
    fitting = int(found[1])
    costs.check_batch(1, (1, fitting), (1, fitting), remove_small_regions=True)
    with pytest.raises(Rejected):
        costs.check_batch(1, (1, fitting + 100), (1, fitting + 100), remove_small_regions=True)


def test_objects_of_an_automatic_region_are_decoded_twice():
    twice, once = (
        Workload(objects=10, masks=10, auto=auto).work_s(10**6) for auto in (True, False)
    )
    assert twice - once == pytest.approx(10 * PROMPT_S)


def test_new_image_that_is_decoded_at_a_smaller_size_is_costly():
    load = replace(work(), reduced_pixels=26_000_000)
    assert load.is_costly(6_500_000)
    assert not load.is_costly(6_500_000, new=False)
    assert load.work_s(6_500_000) > work().work_s(6_500_000) + 0.2
