"""Adapters behind the edge, with a fake tool."""

import pytest
from starlette.responses import JSONResponse, Response

from tests.http.asgi import Http
from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from utils.edge.keys import ApiKeys
from utils.errors import ImageNotCached, Problem
from utils.integrations import ADAPTERS
from utils.integrations.adapter import Adapter, Adapters, ToolRequest

KEY = "ops-key-0123456789"


def error_response(problem: Problem) -> Response:
    return JSONResponse({"success": False, "error": problem.detail}, problem.status)


async def models(call):
    return {"models": ["sam"], "query": dict(call.query)}


class Predict(ToolRequest):
    what: str


async def predict(call, request):
    if request.what == "unknown":
        raise ImageNotCached("no such image")
    if request.what == "bug":
        raise ZeroDivisionError
    return [request.what]


@pytest.fixture
def counts():
    return FakeCounts()


@pytest.fixture
def ask(counts):
    """Return a function that sends a request to the tools' paths."""
    tool = Adapter(
        "tool", {"/tool/models": models}, {"/tool/predict": (Predict, predict)}, error_response
    )
    keyed = Adapter("keyed", {"/keyed/models": models}, {}, error_response, pages_need_key=True)
    off = Adapter("other-tool", {}, {"/other/predict": (Predict, predict)}, error_response)
    adapters = Adapters([tool, keyed], service=None, off=[off])  # type: ignore[arg-type]
    keys = ApiKeys.from_setting(f"ops:{KEY}", None)
    edge = make_edge(
        adapters, work_paths=frozenset(adapters.work), keys=keys, counts=counts, adapters=adapters
    )

    def ask(method, path, headers=None, **options):
        return Http(edge).request(method, path, headers={"Token": KEY} | (headers or {}), **options)

    return ask


def test_page_is_answered_without_a_key(ask):
    assert ask("GET", "/tool/models?a=1", {"Token": ""}).json() == {
        "models": ["sam"],
        "query": {"a": "1"},
    }


def test_page_of_a_tool_that_checks_its_key_there_needs_one(ask):
    assert ask("GET", "/keyed/models").status_code == 200
    refused = ask("GET", "/keyed/models", {"Token": "another-key-0123456789"})
    assert (refused.status_code, refused.json()["success"]) == (401, False)


@pytest.mark.parametrize(
    ("key", "body", "problem"),
    [
        pytest.param("", "", (401, "unauthorized", "got no key"), id="no key"),
        pytest.param(
            KEY, "unknown", (404, "image-not-cached", "no such image"), id="of the handler"
        ),
        pytest.param(KEY, "bug", (500, "internal-error", "unexpected error"), id="bug"),
        pytest.param(KEY, "x" * 101, (413, "body-too-large", "100 bytes"), id="of the edge"),
    ],
)
def test_error_has_the_form_of_the_tool(ask, counts, key, body, problem):
    status, reason, text = problem
    response = ask("POST", "/tool/predict", {"Token": key}, json={"what": body})
    assert response.status_code == status
    assert response.json()["success"] is False
    assert text in response.json()["error"]
    assert counts.answers == [("/tool/predict", status, reason)]


def test_other_paths_have_problem_documents_that_name_the_setting_of_an_adapter_that_is_off(ask):
    unknown, off = ask("GET", "/tool/other"), ask("POST", "/other/predict")
    assert (
        unknown.headers["content-type"] == off.headers["content-type"] == "application/problem+json"
    )
    assert unknown.json()["detail"].endswith("; the page at / lists the paths of the API")
    assert off.json()["detail"].endswith("; other-tool in MOBILE_SAM_INTEGRATIONS adds it")


def test_pages_of_label_studio_need_a_key_and_those_of_other_tools_do_not():
    adapters = Adapters(ADAPTERS, service=None)  # type: ignore[arg-type]
    assert adapters.key_pages == {
        path for path in adapters.pages if path.startswith("/label-studio/")
    }
    assert adapters.key_pages
