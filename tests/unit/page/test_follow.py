"""Following of objects: the page's prompts and judgements are the client's."""

from typing import Any

import numpy as np
import pytest

from benchmarks.sequences import SCENES, render
from mobile_sam_client._follow import _box
from mobile_sam_client._following import (
    LOOKS_DIFFERENT,
    Question,
    Target,
    first_target,
    judge,
    next_target,
    prompts_for,
    small_mask,
    small_picture,
)
from tests.unit.page.formats import rle, run


def rgba(picture: np.ndarray) -> dict[str, Any]:
    """Return a small picture as the page has it."""
    height, width = picture.shape[:2]
    opaque = np.full((height, width, 1), 255, np.uint8)
    data = np.concatenate([picture, opaque], axis=2)
    return {"width": width, "height": height, "data": data.ravel().tolist()}


def record(mask: np.ndarray, score: float) -> dict[str, Any]:
    """Return a mask as the page stores it."""
    return {**rle(mask), "score": score, "area": int(mask.sum()), "box": list(_box(mask))}


def by_client(
    before: np.ndarray, after: np.ndarray, mask: np.ndarray, answer: np.ndarray, score: float
) -> tuple[Target, Question, list[str]]:
    height, width = mask.shape
    pictures = small_picture(before), small_picture(after)
    target = first_target(pictures[0], small_mask(mask), _box(mask), int(mask.sum()))
    question = prompts_for(target, pictures[1], width, height)
    small, area = small_mask(answer), int(answer.sum())
    reasons = judge(target, question, pictures[1], mask=small, area=area, score=score)
    return target, question, reasons


CASES = [(scene.name, frame) for scene in SCENES[3:] for frame in (5,)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frame"), CASES, ids=str)
def test_page_follows_as_the_client_does(name, frame):
    scene = next(scene for scene in SCENES if scene.name == name)
    sequence = render(scene, seed=3, frames=7)
    for masks in sequence.truth.values():
        before, after = sequence.frames[frame - 1], sequence.frames[frame]
        mask, answer = masks[frame - 1], masks[frame]
        if not mask.any() or not answer.any():
            continue
        for given, score in ((answer, 0.9), (~mask, 0.4)):
            _, question, reasons = by_client(before, after, mask, given, score)
            (page,) = run(
                "follow",
                pictures=[rgba(small_picture(before)), rgba(small_picture(after))],
                mask=record(mask, 1.0),
                answers=[record(given, score)],
            )
            assert page["question"]["fields"]["box"] == pytest.approx(question.box)
            assert page["question"]["fields"]["pos_coords"] == [
                pytest.approx(point) for point in question.pos_coords
            ]
            assert page["question"]["cost"] == pytest.approx(question.cost)
            assert page["expected"] == question.expected.ravel().astype(int).tolist()
            assert page["reasons"] == reasons
        assert "low score" in reasons


def square_at(x: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image of a square with a texture, and its mask."""
    image = np.full((192, 256, 3), 110, np.uint8)
    texture = np.random.default_rng(seed).integers(-35, 35, (40, 40, 3))
    image[70:110, x : x + 40] = np.clip(texture + np.array([150, 120, 100]), 0, 255)
    mask = np.zeros((192, 256), bool)
    mask[70:110, x : x + 40] = True
    return image, mask


def test_page_finds_as_the_client_does_that_an_object_looks_different():
    shown = [square_at(100 + 3 * step, seed) for step, seed in enumerate((1, 1, 1, 2, 2))]
    pictures = [small_picture(image) for image, _ in shown]
    first = shown[0][1]
    target = first_target(pictures[0], small_mask(first), _box(first), int(first.sum()))
    expected = []
    for picture, (_, mask) in zip(pictures[1:], shown[1:], strict=True):
        question = prompts_for(target, picture, 256, 192)
        small, area = small_mask(mask), int(mask.sum())
        reasons = judge(target, question, picture, mask=small, area=area, score=0.9)
        target = next_target(target, question, picture, mask=small, box_xyxy=_box(mask), area=area)
        expected.append((reasons, pytest.approx(question.cost)))
    page = run(
        "follow",
        pictures=[rgba(picture) for picture in pictures],
        mask=record(first, 1.0),
        answers=[record(mask, 0.9) for _, mask in shown[1:]],
    )
    assert [(step["reasons"], step["question"]["cost"]) for step in page] == expected
    assert [reasons for reasons, _ in expected] == [[], [], [LOOKS_DIFFERENT], []]


def test_page_does_not_follow_an_empty_mask():
    empty = np.zeros((40, 60), bool)
    picture = rgba(small_picture(np.zeros((40, 60, 3), np.uint8)))
    mask = {**rle(empty), "score": 1.0, "area": 0, "box": [0, 0, 0, 0]}
    assert run("follow", pictures=[picture, picture], mask=mask, answers=[mask]) is None
