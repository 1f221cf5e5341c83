"""Foreign web pages can use no path that works or changes anything, whichever adapter has it."""

import asyncio

import pytest

from tests.http.asgi import messages_of
from utils.app import WORK_PATHS
from utils.edge.stack import edge
from utils.integrations import ADAPTERS
from utils.settings import DEFAULT_INTEGRATIONS

PATHS = sorted(
    WORK_PATHS.union(
        *(adapter.work for adapter in ADAPTERS if adapter.name in DEFAULT_INTEGRATIONS)
    )
)
PAGES = ["/decoder.onnx", "/embeddings/{image_id}"]
FOREIGN = {
    "page": {"origin": "https://evil.example", "content-type": "text/plain"},
    "sandboxed page": {"origin": "null", "content-type": "text/plain"},
    "rebound name": {"origin": "http://evil.example:3000", "host": "evil.example:3000"},
    "rebound name without an origin": {"host": "evil.example:3000"},
}


def answer(app, path: str, headers: dict[str, str], method: str = "POST") -> tuple[int, bytes]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    start, *rest = asyncio.run(messages_of(app, path, b"{}", raw, method=method))
    return start["status"], b"".join(message.get("body", b"") for message in rest)


def test_tried_paths_are_all_paths_of_the_service_that_work(service):
    ((_, options),) = [entry for entry in service.svc.middlewares if entry[0] is edge]
    assert sorted(options["site"].work_paths) == sorted([*PATHS, *PAGES])


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("path", PATHS)
def test_foreign_page_is_refused_on_every_path_that_works(app, segmenter, path, headers):
    status, body = answer(app, path, headers)
    # X-AnyLabeling itself, which sends no Origin, shows the errors of 200s only.
    assert status == (200 if path == "/v1/predict" and "origin" not in headers else 403)
    assert b"MOBILE_SAM_CORS_ORIGINS" in body or b"MOBILE_SAM_HOSTS" in body
    assert segmenter.calls == []


@pytest.mark.parametrize("path", PAGES)
def test_foreign_page_cannot_have_embeddings_or_the_decoder(app, segmenter, path):
    for headers in FOREIGN.values():
        assert answer(app, path, headers, "GET")[0] == 403
    assert segmenter.calls == []


@pytest.mark.parametrize("path", PATHS)
def test_own_page_and_programs_are_not_refused_as_foreign(app, segmenter, path):
    for headers in ({}, {"origin": "http://service"}, {"origin": "https://service"}):
        status, body = answer(app, path, headers)
        assert status != 403
        assert b"Host" not in body


@pytest.mark.parametrize("path", ["/", "/ui", "/info", "/livez", "/readyz", "/docs.json"])
def test_pages_and_health_are_readable_under_any_name(app, segmenter, path):
    status, _ = answer(app, path, {"origin": "https://evil.example", "host": "evil.example"}, "GET")
    assert status == 200
