"""What an answer takes, known before the work."""

from __future__ import annotations

import re
from dataclasses import replace

import mobile_sam_costs as costs
import numpy as np
import pytest
from mobile_sam_costs import Wish
from mobile_sam_masks import FORMATS, MaskPart
from mobile_sam_pictures import STYLES, Picture
from mobile_sam_problems import Rejected

from utils.settings import Settings

BYTES = Settings().max_answer_bytes
LARGEST = (5000, 5000)
PHOTO = (1200, 1800)
CLICK = Wish(1, 1, "json", "overlay")


def refusal(wish: Wish, size_hw: tuple[int, int], max_bytes: int = BYTES) -> Rejected | None:
    try:
        wish.check(size_hw, max_bytes)
    except Rejected as rejected:
        return rejected
    return None


@pytest.mark.parametrize("mask_format", FORMATS)
@pytest.mark.parametrize("style", STYLES)
def test_a_click_on_the_largest_image_is_answered(mask_format, style):
    assert refusal(Wish(1, 1, mask_format, style, low_res=True), LARGEST) is None


@pytest.mark.parametrize(("mask_format", "masks"), [("rle", 768), ("png", 256)])
def test_as_many_objects_as_a_request_may_have_are_answered_on_a_photograph(mask_format, masks):
    assert refusal(Wish(256, masks, mask_format, "none"), PHOTO) is None


@pytest.mark.parametrize(
    ("wish", "size_hw", "slug"),
    [
        pytest.param(Wish(256, 768, "polygon"), LARGEST, "too-much-work", id="polygons"),
        pytest.param(Wish(256, 768, "rle"), LARGEST, "too-much-work", id="run lengths"),
        pytest.param(Wish(256, 256, "rle", "overlay"), LARGEST, "too-much-work", id="a picture of many"),
        pytest.param(Wish(256, 768, "rle", low_res=True), (10, 10), "answer-too-large", id="low-resolution masks"),
        pytest.param(Wish(4, 4, "json"), LARGEST, "answer-too-large", id="json"),
        pytest.param(Wish(7, 7, "npy"), LARGEST, "answer-too-large", id="npy"),
        pytest.param(Wish(60, 60, "png"), LARGEST, "answer-too-large", id="png"),
    ],
)
def test_what_takes_too_much_is_refused_with_what_would_fit(wish, size_hw, slug):
    rejected = refusal(wish, size_hw)
    assert rejected is not None
    assert (rejected.status, rejected.slug) == (422, slug)
    (error,) = rejected.errors
    found = re.match(
        rf"at most (\d+) as {wish.mask_format} with the picture {wish.style} on an image of", error["expected"]
    )
    assert found
    fits, each = int(found[1]), wish.masks // wish.objects
    assert error["got"].startswith(f"{wish.objects}: ")
    assert refusal(replace(wish, objects=fits, masks=fits * each), size_hw) is None
    assert refusal(replace(wish, objects=fits + 1, masks=(fits + 1) * each), size_hw) is not None


def test_of_an_image_that_is_too_large_for_one_none_fits():
    rejected = refusal(CLICK, LARGEST, max_bytes=10**6)
    assert rejected is not None
    assert rejected.errors[0]["expected"].startswith("at most 0 as json")


def test_clicks_on_photographs_are_light_and_what_keeps_others_waiting_is_not():
    pixels = PHOTO[0] * PHOTO[1]
    assert CLICK.is_light(pixels)
    assert Wish().is_light(4000 * 3000)
    assert not Wish().is_light(25_000_000)
    assert not Wish(1, 1, "json", "overlay").is_light(4000 * 3000)
    assert not Wish(64, 64, "rle", "none").is_light(pixels)


@pytest.mark.parametrize("mask_format", FORMATS)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_no_answer_has_more_bytes_than_were_reckoned(mask_format, share):
    size_hw = (211, 307)
    masks = np.random.default_rng(1).random((3, *size_hw)) < share
    part = MaskPart(mask_format, size_hw, 3)
    picture = Picture(np.random.default_rng(2).integers(0, 256, (*size_hw, 3), np.uint8), "cutout")
    counted = sum(part.add(mask) for mask in masks) if mask_format in ("rle", "polygon") else 0
    if not counted:
        for mask in masks:
            part.add(mask)
    reckoned = Wish(3, 3, mask_format, "cutout").answer_bytes(size_hw[0] * size_hw[1])
    container = 2000  # brackets, headers of files, what compression adds to noise
    assert len(b"".join(part.encode())) + len(picture.encode()) <= reckoned + counted + container


def test_every_format_and_style_has_its_cost():
    assert set(costs.FORMAT_NS) == set(costs.FORMAT_BYTES) == set(FORMATS)
    assert set(costs.DRAW_NS) == set(costs.PICTURE_NS) == set(costs.PICTURE_BYTES) == set(STYLES)


def test_a_request_has_time_for_what_is_admitted():
    assert Settings().inference_timeout > 2 * costs.MAX_WORK_S


@pytest.mark.parametrize(
    ("wanted", "message"), [({"mask_format": "bmp"}, "mask_format"), ({"style": "x"}, "segmented_image")]
)
def test_an_unknown_format_or_picture_is_an_error(wanted, message):
    with pytest.raises(ValueError, match=f"{message} must be one of .*, got '"):
        Wish(1, 1, **wanted)
