"""The table of paths, and the choice of what answers them."""

import pytest

from tests.unit.utils.edge.middleware.calls import PATHS, Application, ask
from utils.edge.paths import PathRouter


@pytest.mark.parametrize(
    ("route", "label", "is_printable"),
    [
        pytest.param("/work", "/work", True, id="known"),
        pytest.param("/static_content/a.css", "/static_content", True, id="file"),
        pytest.param("/v1/tool", "other", True, id="tool-that-is-off"),
        pytest.param("/a-secret", "other", False, id="unknown"),
    ],
)
def test_metrics_and_logs_have_a_bounded_number_of_paths(route, label, is_printable):
    assert PATHS.label(route) == label
    assert PATHS.is_printable(route) is is_printable


async def test_request_goes_to_the_application_of_its_path_or_else_to_that_of_all_others():
    jobs, others = Application(), Application()
    router = PathRouter({"/embed/{job}": jobs}, others)
    for path in ("/embed/1", "/embed/2", "/work"):
        await ask(router, path)
    assert [request.route for request in jobs.requests] == ["/embed/{job}"] * 2
    assert [request.route for request in others.requests] == ["/work"]
