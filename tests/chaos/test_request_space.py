"""Space of requests in which the costliest are searched."""

from collections.abc import Iterator

import pytest

from tests.chaos.request_space import OPTIONS, SPACE, Point, point, request
from tests.chaos.tool_requests import TOOL_PATHS
from tests.fuzz.entry_points import MODELS
from tests.unit.utils.integrations.replay import Replay
from utils.api.received import parse_body
from utils.app import WORK_PATHS
from utils.integrations import ADAPTERS


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
        replay, asked = Replay(adapter), request(at)
        answer = replay.post(asked.path, content=asked.body, headers=dict(asked.headers))
        assert replay.calls or path == "/label-studio/setup", answer.text


@pytest.mark.parametrize("path", OPTIONS)
@pytest.mark.parametrize("image_source", SPACE["image_source"])
def test_request_is_valid_at_both_ends_of_each_dimension(path: str, image_source: str):
    for at in ends(path, image_source):
        parsed = parse_body(request(at).body or b"", MODELS[path.strip("/")]).model_dump(exclude_none=True)
        assert set(parsed) & {"input_image", "image_id"} == {"image_id" if image_source == "by id" else "input_image"}
