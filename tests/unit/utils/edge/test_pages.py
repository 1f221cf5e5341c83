"""Readiness and metrics of a worker."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from tests.unit.utils.edge.middleware.calls import ask, body_of, headers_of
from utils.edge.admission import Admission
from utils.edge.pages import MetricsPage, ReadinessPage
from utils.errors import InferenceFailed
from utils.triton.health import Health


@pytest.mark.parametrize(
    ("state", "slug"),
    [
        ("ready", None),
        ("starting", b"inference-unavailable"),
        ("failing", b"inference-unavailable"),
        ("stopping", b"stopping"),
    ],
)
async def test_readiness_is_that_of_triton(state, slug):
    answer = await ask(ReadinessPage(Admission(1, 1), lambda: Health(state)), "/readyz", "GET")
    assert answer[0]["status"] == (503 if slug else 200)
    assert (slug or b"ready") in body_of(answer)


async def test_worker_that_stops_is_not_ready():
    admission = Admission(1, 1)
    admission.stop(10)
    answer = await ask(ReadinessPage(admission, lambda: Health("ready")), "/readyz", "GET")
    assert (answer[0]["status"], b"stopping" in body_of(answer)) == (503, True)


async def test_metrics_of_all_parts_are_read_once_for_all_callers():
    reads: list[str] = []

    async def bento_app(scope, receive, send):
        reads.append(scope["path"])
        await PlainTextResponse("a_metric 1\n")(scope, receive, send)

    async def source() -> bytes:
        return b"further 2\n"

    page = MetricsPage(bento_app, lambda: Health("ready"), [source])
    answers = await asyncio.gather(*(ask(page, "/metrics", "GET") for _ in range(8)))
    assert reads == ["/metrics"]
    for answer in answers:
        lines = body_of(answer).splitlines()
        assert (lines[0], lines[-1]) == (b"a_metric 1", b"further 2")
        assert b"mobile_sam_ready 1" in lines
        assert headers_of(answer)["content-type"].startswith("text/plain")


async def test_metrics_that_bentoml_cannot_answer_are_an_error():
    page = MetricsPage(PlainTextResponse("broken", 500), lambda: Health("ready"), [])
    with pytest.raises(InferenceFailed):
        await ask(page, "/metrics", "GET")
