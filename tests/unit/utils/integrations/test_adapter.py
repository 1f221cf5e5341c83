"""Adapters behind the edge, with a fake tool."""

import asyncio
import itertools
import threading
from typing import Any

import orjson
import pytest
from starlette.responses import JSONResponse, Response

from orchestrator.problems import ANSWER_TOO_LARGE, rejected
from tests.fake_segmenter import FakeSegmenter
from tests.http.asgi import Http
from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from utils.api.errors import ImageNotCached, InvalidRequest, Problem
from utils.edge.keys import ApiKeys
from utils.integrations import ADAPTERS
from utils.integrations.adapter import Adapter, Adapters, Service, ToolRequest
from utils.settings import INTEGRATIONS, Settings

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
    tool = Adapter("tool", {"/tool/models": models}, {"/tool/predict": (Predict, predict)}, error_response)
    keyed = Adapter("keyed", {"/keyed/models": models}, {}, error_response, pages_need_key=True)
    off = Adapter("other-tool", {}, {"/other/predict": (Predict, predict)}, error_response)
    adapters = Adapters([tool, keyed], service=None, off=[off])  # type: ignore[arg-type]
    keys = ApiKeys.of(f"ops:{KEY}", None)
    edge = make_edge(adapters, work_paths=frozenset(adapters.work), keys=keys, counts=counts, adapters=adapters)

    def ask(method, path, headers=None, **options):
        return Http(edge).request(method, path, headers={"Token": KEY} | (headers or {}), **options)

    return ask


def test_page_is_answered_without_a_key(ask):
    assert ask("GET", "/tool/models?a=1", {"Token": ""}).json() == {"models": ["sam"], "query": {"a": "1"}}


def test_page_of_a_tool_that_checks_its_key_there_needs_one(ask):
    assert ask("GET", "/keyed/models").status_code == 200
    refused = ask("GET", "/keyed/models", {"Token": "another-key-0123456789"})
    assert (refused.status_code, refused.json()["success"]) == (401, False)


def test_work_is_answered_and_counted_under_its_path(ask, counts):
    assert ask("POST", "/tool/predict", json={"what": "click"}).json() == ["click"]
    assert counts.answers == [("/tool/predict", 200, "ok")]


@pytest.mark.parametrize(
    ("key", "body", "problem"),
    [
        pytest.param("", "", (401, "unauthorized", "got no key"), id="no key"),
        pytest.param(KEY, "unknown", (404, "image-not-cached", "no such image"), id="of the handler"),
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
    assert unknown.headers["content-type"] == off.headers["content-type"] == "application/problem+json"
    assert unknown.json()["detail"].endswith("; the page at / lists all paths")
    assert off.json()["detail"].endswith("; other-tool in MOBILE_SAM_INTEGRATIONS adds it")


def test_names_in_the_settings_are_those_of_the_adapters():
    assert [adapter.name for adapter in ADAPTERS] == list(INTEGRATIONS)


LARGE = {"box": [0, 0, 5000, 5000], "rle": {"size": [5000, 5000]}}
SMALL = {"box": [0, 0, 5, 5], "rle": {"size": [5, 5]}}


def converted(masks, convert, **options):
    """Return masks in the form of a tool, as JSON."""
    service = Service(FakeSegmenter, Settings(max_answer_bytes=1000))
    found = asyncio.run(service.converted(masks, convert, **{"box_ns": 10.0, **options}))
    return [orjson.loads(orjson.dumps(item)) for item in found]


class Recorded:
    """A conversion that records its masks, and returns the same items for each."""

    def __init__(self, *items: Any) -> None:
        self.calls: list[Any] = []
        self._items = items

    def __call__(self, mask: Any) -> Any:
        self.calls.append(mask)
        return self._items


def test_masks_are_converted_in_their_order_and_can_be_none_or_several():
    assert converted([{**SMALL, "n": n} for n in range(3)], lambda mask: [mask["n"]] * mask["n"]) == [1, 2, 2]


@pytest.mark.parametrize(
    ("count", "options", "fits"),
    [(100, {}, 79), (60, {"work_s": 12.5}, 48), (30, {"box_ns": 100.0}, 9)],
    ids=["many", "model's part", "costly"],
)
def test_estimated_work_is_refused_with_the_number_that_fits(count, options, fits):
    convert = Recorded()
    with pytest.raises(InvalidRequest, match=rf"at most {fits} masks like these \(25 s of work\).* got {count} masks"):
        converted([LARGE] * count, convert, **options)
    assert convert.calls == []


def test_work_above_its_estimate_ends(monkeypatch):
    clock, convert = itertools.count(step=10), Recorded()
    monkeypatch.setattr("utils.integrations.adapter.time.thread_time", lambda: next(clock))
    with pytest.raises(InvalidRequest, match="at most 2 masks"):
        converted([SMALL] * 9, convert)
    assert len(convert.calls) == 3


def test_answer_above_its_limit_is_refused_before_it_is_complete():
    convert = Recorded("x" * 300)
    with pytest.raises(InvalidRequest, match=r"at most 3 masks like these \(1000 bytes\)"):
        converted([SMALL] * 9, convert)
    assert len(convert.calls) == 4


def test_polygons_with_too_many_rings_are_an_error_of_the_request():
    def convert(_):
        raise rejected(ANSWER_TOO_LARGE, "mask_format", "at most 5 outlines", "more")

    with pytest.raises(InvalidRequest, match="mask_format: expected at most 5 outlines"):
        converted([SMALL], convert)


def test_costly_conversions_take_turns_and_end_when_the_caller_leaves():
    service = Service(FakeSegmenter, Settings())
    started, go, calls = threading.Event(), threading.Event(), []

    def convert(mask):
        calls.append(mask["name"])
        started.set()
        assert go.wait(10)
        return []

    async def run():
        first, second = (
            asyncio.ensure_future(service.converted([{**LARGE, "name": name}] * 5, convert, box_ns=10.0))
            for name in ("first", "second")
        )
        await asyncio.to_thread(started.wait, 10)
        assert calls == ["first"]
        first.cancel()
        await asyncio.wait([first])
        go.set()
        assert await second == []

    asyncio.run(run())
    assert sorted(calls) == ["first", *["second"] * 5]
