"""Slots, time limits, and answers of other software."""

import asyncio

import pytest
from starlette.responses import PlainTextResponse

from tests.unit.utils.edge.fakes import FakeCounts
from tests.unit.utils.edge.middleware.calls import Application, ask, body_of, headers_of
from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.edge.middleware.work import (
    ForeignErrorsMiddleware,
    SlotMiddleware,
    TimeLimitMiddleware,
)
from utils.edge.request import request_of
from utils.errors import InferenceTimeout
from utils.integrations.adapter import Adapter, Adapters

LENGTH = [(b"content-length", b"100000")]
PROBLEM = [(b"Content-Type", b"application/problem+json"), (b"Content-Length", b"6")]


def adapters_of(*tools: Adapter) -> Adapters:
    return Adapters(tools, None)  # type: ignore[arg-type]


async def test_slot_is_held_while_the_work_runs():
    admission, counts = Admission(1, 1), FakeCounts()

    async def app(scope, receive, send):
        assert admission.in_progress == counts.in_progress == 1

    await ask(SlotMiddleware(app, admission, counts, adapters_of(), ()))
    assert admission.in_progress == counts.in_progress == 0


async def test_slot_of_an_answer_that_starts_is_free_for_the_next_request():
    admission = Admission(1, 1)
    held: list[dict[str, int]] = []

    async def app(scope, receive, send):
        held.append(dict(admission.requests.held))
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-length", b"1")]})
        held.append(dict(admission.requests.held))

    await ask(SlotMiddleware(app, admission, FakeCounts(), adapters_of(), ()))
    assert held == [{"10.0.0.1": 1}, {}]


@pytest.mark.parametrize(
    ("file_answers", "status"),
    [pytest.param((), 503, id="memory"), pytest.param({"/work"}, 200, id="file")],
)
async def test_answer_for_which_there_is_no_room_is_refused_before_it_starts(file_answers, status):
    admission = Admission(8, 1, 150_000)
    app = Application(headers=LENGTH)
    step = SlotMiddleware(app, admission, FakeCounts(), adapters_of(), file_answers)
    with admission.slot("10.0.0.2") as start_answer:
        start_answer(100_000)
        answer = await ask(step)
    assert answer[0]["status"] == status
    assert (body_of(answer) == b"answer") is (status == 200)


async def test_error_of_other_software_becomes_a_problem_and_keeps_its_headers():
    headers = [(b"Content-Type", b"text/html"), (b"Content-Length", b"6"), (b"Allow", b"POST")]
    step = ForeignErrorsMiddleware(Application(405, headers), adapters_of())
    answer = await ask(step)
    assert answer[0]["status"] == 405
    assert headers_of(answer)["content-type"] == "application/problem+json"
    assert headers_of(answer)["allow"] == "POST"
    assert b"method-not-allowed" in body_of(answer)
    assert int(headers_of(answer)["content-length"]) == len(body_of(answer))


@pytest.mark.parametrize(
    ("path", "app"),
    [
        pytest.param("/work", Application(200, [(b"content-type", b"text/html")]), id="answer"),
        pytest.param("/work", Application(422, PROBLEM), id="problem"),
        pytest.param("/tool", Application(422, [(b"content-type", b"text/html")]), id="tool"),
    ],
)
async def test_other_answers_pass_as_they_are(path, app):
    tool = Adapter("tool", {}, {"/tool": PlainTextResponse()})
    answer = await ask(ForeignErrorsMiddleware(app, adapters_of(tool)), path)
    assert (answer[0]["status"], body_of(answer)) == (app.status, b"answer")


async def test_work_that_does_not_answer_in_time_ends():
    async def endless(scope, receive, send):
        await asyncio.sleep(60)

    with pytest.raises(InferenceTimeout):
        await ask(TimeLimitMiddleware(endless, Limits(1, 1, lambda: 0.01)))


async def test_application_gets_the_body_and_the_edge_keeps_it_no_longer():
    received: list[bytes] = []

    async def app(scope, receive, send):
        received.append((await receive())["body"])
        received.append(request_of(scope).content)
        await Application()(scope, receive, send)

    step = TimeLimitMiddleware(app, Limits(1, 60, lambda: 60))

    async def with_content(scope, receive, send):
        request_of(scope).content = b"body"
        await step(scope, receive, send)

    await ask(with_content)
    assert received == [b"body", b""]
