"""Following of objects: the page's prompts and judgements are the client's."""

from typing import Any

import numpy as np
import pytest

from benchmarks.sequences import SCENES, render
from mobile_sam_client._follow import _box
from mobile_sam_client._following import (
    Question,
    Target,
    first_target,
    judge,
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
            page = run(
                "follow",
                pictures=[rgba(small_picture(before)), rgba(small_picture(after))],
                mask=record(mask, 1.0),
                answer=record(given, score),
            )
            assert page["question"]["fields"]["box"] == pytest.approx(question.box)
            assert page["question"]["fields"]["pos_coords"] == [
                pytest.approx(point) for point in question.pos_coords
            ]
            assert page["question"]["cost"] == pytest.approx(question.cost)
            assert page["expected"] == question.expected.ravel().astype(int).tolist()
            assert page["reasons"] == reasons
        assert "low score" in reasons


def test_page_does_not_follow_an_empty_mask():
    empty = np.zeros((40, 60), bool)
    picture = rgba(small_picture(np.zeros((40, 60, 3), np.uint8)))
    mask = {**rle(empty), "score": 1.0, "area": 0, "box": [0, 0, 0, 0]}
    assert run("follow", pictures=[picture, picture], mask=mask, answer=mask) is None
