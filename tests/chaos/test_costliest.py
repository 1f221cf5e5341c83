"""Search for the costliest request, with made-up costs, and the space of requests."""

from __future__ import annotations

import itertools
import json

import pytest
from pydantic import BaseModel

from tests.chaos.costliest import climb
from tests.chaos.request_space import SPACE, Point, dimensions, point, relevant, renew_image, request
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest, parse_body

MADE_UP = {"format": ("a", "b", "c"), "more": (False, True), "count": (1, 4, 16, 64)}
MODELS: dict[str, type[BaseModel]] = {
    "/mobile_sam": SegmentRequest,
    "/embed": EmbedRequest,
    "/everything": EverythingRequest,
}


def product(point: Point) -> float:
    """Return the product of the dimensions, or 0 beyond a limit, as for refused requests."""
    work = {"a": 1, "b": 3, "c": 2}[point[0]] * (2 if point[1] else 1) * point[2]
    return 0.0 if work > 100 else float(work)


class Budget:
    """Budget that is spent after `count` calls."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def test_climb_finds_the_costliest_point_below_a_limit():
    found = climb(MADE_UP, product, Budget(10_000))
    assert (found.point, found.value) == (("b", True, 16), 96.0)


def test_climb_visits_each_point_once_and_ends_after_all():
    asked: list[Point] = []

    def value(point: Point) -> float:
        asked.append(point)
        return product(point)

    climb(MADE_UP, value, lambda: False)
    assert sorted(asked) == sorted(itertools.product(*MADE_UP.values()))


def test_climb_leaves_a_local_maximum():
    def value(point: Point) -> float:
        return 100.0 if point == ("c", True, 64) else float(point[0] == "b") - point[1] - point[2]

    assert climb(MADE_UP, value, Budget(10_000), seed=1).value == 100


@pytest.mark.parametrize("budget", [0, 5])
def test_climb_ends_when_the_budget_is_spent(budget: int):
    asked: list[Point] = []

    def value(point: Point) -> float:
        asked.append(point)
        return product(point)

    found = climb(MADE_UP, value, Budget(budget))
    assert 1 <= len(asked) <= budget + 1
    assert found.value == max(map(product, asked))


@pytest.mark.parametrize("path", SPACE["path"])
@pytest.mark.parametrize("image_source", SPACE["image_source"])
def test_request_is_valid_at_both_ends_of_each_dimension(path: str, image_source: str):
    for end in (0, -1):
        chosen = {name: options[end] for name, options in SPACE.items()}
        chosen |= {"size": (64, 48), "path": path, "image_source": image_source}
        asked, body = request(tuple(chosen.values()))
        assert asked == path
        parsed = parse_body(body, MODELS[path]).model_dump(exclude_none=True)
        assert set(parsed) & {"input_image", "image_id"} == {"image_id" if image_source == "by id" else "input_image"}


def test_request_takes_the_number_of_objects():
    many = point(objects=256, size=(64, 48))
    assert len(json.loads(request(many, 7)[1])["prompts"]) == 7
    assert len(json.loads(request(many)[1])["prompts"]) == 256


def test_renew_image_changes_only_the_image():
    body = request(point(size=(64, 48)))[1]
    old, new, newer = (json.loads(text) for text in (body, renew_image(body), renew_image(body)))
    images = [fields.pop("input_image") for fields in (old, new, newer)]
    assert old == new == newer
    assert len(set(images)) == 3
    assert all(image.startswith(images[0]) for image in images)


@pytest.mark.parametrize("path", SPACE["path"])
def test_relevant_resets_unused_dimensions_to_the_cheapest_option(path: str):
    costly = {name: options[-1] for name, options in SPACE.items()} | {"path": path}
    used = {name: costly[name] for name in dimensions(path)}
    assert relevant(tuple(costly.values())) == point(path=path, **used)
    assert {"size", "content"} < set(used) < set(SPACE)
