"""Search for the costliest request, with made-up costs, and the space of requests."""

import itertools
import json
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.callers import JSON
from tests.chaos.costliest import climb
from tests.chaos.request_space import NO_IMAGE, OPTIONS, SPACE, Point, dimensions, point, renew_image, request
from tests.chaos.tool_requests import TOOL_PATHS
from tests.fuzz.ways_in import MODELS
from tests.unit.utils.integrations.replay import Replay
from utils.api.received import parse_body
from utils.app import WORK_PATHS
from utils.integrations import ADAPTERS

MADE_UP = {"format": ("a", "b", "c"), "more": (False, True), "count": (1, 4, 16, 64)}


def product(point: Point) -> float:
    """Return the product of the dimensions, or 0 beyond a limit, as for refused requests."""
    work = {"a": 1, "b": 3, "c": 2}[point[0]] * (2 if point[1] else 1) * point[2]
    return 0.0 if work > 100 else float(work)


def test_climb_starts_at_a_given_point():
    assert climb(MADE_UP, product, lambda: True, ("b", False, 4)) == ("b", False, 4)


def local_maximum(point: Point) -> float:
    return 100.0 if point == ("c", True, 64) else float(point[0] == "b") - point[1] - point[2]


@pytest.mark.parametrize(
    ("value", "costliest"),
    [
        pytest.param(product, ("b", True, 16), id="below a limit"),
        pytest.param(local_maximum, ("c", True, 64), id="beyond a local maximum"),
    ],
)
def test_climb_visits_each_point_once_and_finds_the_costliest(value: Callable[[Point], float], costliest: Point):
    asked: list[Point] = []

    def recorded(point: Point) -> float:
        asked.append(point)
        return value(point)

    assert climb(MADE_UP, recorded, lambda: False) == costliest
    assert sorted(asked) == sorted(itertools.product(*MADE_UP.values()))


@pytest.mark.parametrize("budget", [0, 5])
def test_climb_ends_when_the_budget_is_spent(budget: int):
    asked: list[Point] = []

    def recorded(point: Point) -> float:
        asked.append(point)
        return product(point)

    left = iter([False] * budget)
    found = climb(MADE_UP, recorded, lambda: next(left, True))
    assert 1 <= len(asked) <= budget + 1
    assert product(found) == max(map(product, asked))


def test_space_has_every_path_that_works():
    handlers = {path: work for adapter in ADAPTERS for path, work in adapter.work.items() if work != {}}
    assert {*OPTIONS} == WORK_PATHS
    assert {handlers[path] for path in TOOL_PATHS} == {*handlers.values()}


def ends(path: str, image_source: str) -> Iterator[Point]:
    """Yield the points of a path with the first and the last option of all dimensions."""
    for end in (0, -1):
        chosen = {name: options[end] for name, options in SPACE.items()}
        yield point(**chosen | {"size": (64, 48), "nested": 0, "path": path, "image_source": image_source})


@pytest.mark.parametrize("path", TOOL_PATHS)
@pytest.mark.parametrize("image_source", SPACE["image_source"])
def test_request_of_a_tool_reaches_the_model_at_both_ends_of_each_dimension(path: str, image_source: str):
    (adapter,) = (adapter for adapter in ADAPTERS if path in adapter.work)
    for at in ends(path, image_source):
        replay = Replay(adapter)
        asked, body, headers = request(at)
        answer = replay.post(asked, content=body, headers=JSON | headers)
        assert replay.calls or path in NO_IMAGE, answer.text


@pytest.mark.parametrize("path", OPTIONS)
@pytest.mark.parametrize("image_source", SPACE["image_source"])
def test_request_is_valid_at_both_ends_of_each_dimension(path: str, image_source: str):
    for at in ends(path, image_source):
        asked, body, _ = request(at)
        assert asked == path
        parsed = parse_body(body, MODELS[path.strip("/")]).model_dump(exclude_none=True)
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
def test_point_takes_the_cheapest_option_of_dimensions_that_do_not_affect_its_path(path: str):
    costly = {name: options[-1] for name, options in SPACE.items()} | {"path": path}
    chosen = dict(zip(SPACE, point(**costly), strict=True))
    cheap = {name for name, option in chosen.items() if option == SPACE[name][0] and name != "path"}
    assert cheap == set(SPACE) - {"path", *dimensions(path)}
    assert ({"size", "content"} < set(dimensions(path))) == (path not in NO_IMAGE)
