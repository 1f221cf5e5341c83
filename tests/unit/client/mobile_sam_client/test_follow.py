"""Following of objects: what is asked on the next image, and which answers need review."""

import numpy as np
import pytest

from mobile_sam_client._following import (
    LOOKS_DIFFERENT,
    first_target,
    innermost,
    judge,
    moved,
    next_target,
    prompts_for,
    small_mask,
    small_picture,
    small_size,
)

SIZE_HW = (192, 256)


def picture(x: int, y: int, colour: tuple[int, int, int] = (220, 60, 40)) -> np.ndarray:
    """Return a small picture with a textured square at a place."""
    pixels = np.random.default_rng(1).integers(90, 130, (*SIZE_HW, 3), dtype=np.uint8)
    texture = np.random.default_rng(2).integers(-20, 20, (40, 40, 3))
    pixels[y : y + 40, x : x + 40] = np.clip(texture + colour, 0, 255)
    return pixels


def square(x: int, y: int, side: int = 40) -> np.ndarray:
    mask = np.zeros(SIZE_HW, bool)
    mask[y : y + side, x : x + side] = True
    return mask


def target_at(x: int, y: int):
    return first_target(
        picture(x, y), square(x, y), (4 * x, 4 * y, 4 * x + 160, 4 * y + 160), 25600
    )


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (9, -6), (-14, 11)])
def test_prompts_are_at_the_place_to_which_the_object_has_moved(dx, dy):
    question = prompts_for(target_at(100, 70), picture(100 + dx, 70 + dy), 1024, 768)
    assert np.array_equal(question.expected, square(100 + dx, 70 + dy))
    x0, y0 = 4 * (100 + dx), 4 * (70 + dy)
    assert question.box == [x0 - 8, y0 - 8, x0 + 168, y0 + 168]
    ((x, y),) = question.pos_coords
    assert abs(x - x0 - 80) < 8
    assert abs(y - y0 - 80) < 8


def test_box_at_the_edge_ends_with_the_image():
    question = prompts_for(target_at(212, 0), picture(216, 0), 1024, 768)
    assert question.box[1] == 0
    assert question.box[2] == 1024


def reasons_for(mask: np.ndarray, after: np.ndarray, score: float = 0.9) -> list[str]:
    target = target_at(100, 70)
    question = prompts_for(target, after, 1024, 768)
    return judge(target, question, after, mask=mask, area=16 * int(mask.sum()), score=score)


@pytest.mark.parametrize(
    ("mask", "after", "score", "expected"),
    [
        (square(105, 72), picture(105, 72), 0.9, []),
        (square(105, 72), picture(105, 72), 0.5, ["low score"]),
        (square(105, 72), picture(105, 72, (200, 55, 36)), 0.9, []),
        (square(100, 70), picture(100, 70, (40, 60, 220)), 0.9, ["other colours"]),
        (square(105, 72, 25), picture(105, 72), 0.9, ["other place", "other size"]),
        (np.zeros(SIZE_HW, bool), picture(105, 72), 0.9, ["no mask"]),
    ],
    ids=["plausible", "score", "a little darker", "colours", "size", "empty"],
)
def test_implausible_answers_need_review(mask, after, score, expected):
    assert reasons_for(mask, after, score) == expected


def test_object_that_is_harder_to_find_than_before_looks_different():
    target = target_at(100, 70)
    for x in (103, 106):
        after = picture(x, 70)
        question = prompts_for(target, after, 1024, 768)
        mask = square(x, 70)
        assert judge(target, question, after, mask=mask, area=25600, score=0.9) == []
        box = (4 * x, 280, 4 * x + 160, 440)
        target = next_target(target, question, after, mask=mask, box_xyxy=box, area=25600)
    assert target.steps == 2
    half_hidden = picture(109, 70)
    half_hidden[70:110, 109:124] = (10, 200, 60)
    question = prompts_for(target, half_hidden, 1024, 768)
    mask = square(109, 70)
    reasons = judge(target, question, half_hidden, mask=mask, area=25600, score=0.9)
    assert reasons == [LOOKS_DIFFERENT]


def test_innermost_pixel_is_the_farthest_from_the_edge():
    mask = square(10, 10, 31) | square(60, 60, 9)
    assert innermost(mask) == (25, 25)


def test_moved_mask_is_cut_off_at_the_edges():
    assert moved(square(0, 0), -15, 10).sum() == 25 * 40
    assert not moved(square(0, 0), -256, 0).any()


@pytest.mark.parametrize(
    ("wide", "high", "expected"),
    [(1024, 768, (256, 192)), (30, 60, (128, 256)), (5000, 3, (256, 1))],
)
def test_small_masks_and_pictures_have_one_size(wide, high, expected):
    assert small_size(wide, high) == expected
    assert small_mask(np.ones((high, wide), bool)).shape == expected[::-1]
    assert small_picture(np.zeros((high, wide, 3), np.uint8)).shape[:2] == expected[::-1]
