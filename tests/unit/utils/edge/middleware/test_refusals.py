"""Errors of the further steps become answers."""

import json

import pytest
from starlette.responses import PlainTextResponse

from tests.unit.utils.edge.middleware.calls import Application, ask, body_of, headers_of
from utils.edge.bodies import ClientDisconnected
from utils.edge.limits import Limits
from utils.edge.middleware.refusals import RefusalsMiddleware
from utils.errors import (
    BodyTooLarge,
    ForeignPage,
    Overloaded,
    ServiceError,
    Stopping,
    TooManyRequests,
)
from utils.inference.shares import RecentCallers
from utils.integrations.adapter import Adapter, Adapters

LIMITS = Limits(100, 60, lambda: 60)
LINES = [(b"Content-Type", b"application/x-ndjson")]


def make_step(app: Application, active: RecentCallers | None = None) -> RefusalsMiddleware:
    """Return the step, with a tool at `/tool` that shows its errors as text."""

    def as_text(problem):
        return PlainTextResponse(f"tool: {problem.title}")

    tool = Adapter("tool", {}, {"/tool": {}}, as_text)
    adapters = Adapters([tool], None)  # type: ignore[arg-type]
    return RefusalsMiddleware(app, adapters, active or RecentCallers(), LIMITS)


async def test_error_becomes_a_problem_document():
    answer = await ask(make_step(Application(pieces=[], error=ServiceError("why"))))
    assert answer[0]["status"] == 500
    assert headers_of(answer)["content-type"] == "application/problem+json"


async def test_error_has_the_form_of_the_paths_tool():
    step = make_step(Application(pieces=[], error=ServiceError("why")))
    answer = await ask(step, "/tool")
    assert body_of(answer).startswith(b"tool: ")


async def test_foreign_page_gets_a_problem_document_and_the_tool_itself_its_form():
    step = make_step(Application(pieces=[], error=ForeignPage("a host", got="another")))
    origin = [(b"origin", b"https://foreign.example")]
    assert (await ask(step, "/tool", headers=origin))[0]["status"] == 403
    assert body_of(await ask(step, "/tool")).startswith(b"tool: ")


@pytest.mark.parametrize(
    ("error", "delays"),
    [
        pytest.param(Overloaded("full"), [Overloaded.retry_after], id="503"),
        pytest.param(TooManyRequests("often", 5), [Overloaded.retry_after], id="429"),
        pytest.param(ServiceError("why"), [], id="other"),
    ],
)
async def test_refused_caller_waits_while_others_are_active(error, delays, monkeypatch):
    pauses: list[float] = []

    async def no_sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("utils.edge.middleware.refusals.asyncio.sleep", no_sleep)
    active = RecentCallers()
    step = make_step(Application(pieces=[], error=error), active)
    await ask(step)
    assert pauses == []
    active.note("10.0.0.2")
    await ask(step)
    assert pauses == delays


@pytest.mark.parametrize(
    ("error", "headers", "closes"),
    [
        pytest.param(ServiceError("why"), [(b"content-length", b"100")], False, id="little-unread"),
        pytest.param(ServiceError("why"), [(b"content-length", b"101")], True, id="much-unread"),
        pytest.param(ServiceError("why"), [(b"transfer-encoding", b"chunked")], True, id="unknown"),
        pytest.param(BodyTooLarge(100), [], True, id="too-large"),
    ],
)
async def test_refusal_of_a_body_that_is_not_read_closes_the_connection(error, headers, closes):
    step = make_step(Application(pieces=[], error=error))
    answer = await ask(step, headers=headers, body=[b"a" * 50, b"a" * 50])
    assert (headers_of(answer).get("connection") == "close") is closes
    assert not answer[-1].get("more_body", False)


@pytest.mark.parametrize("error", [Stopping(), Overloaded("full")], ids=["stop", "lost"])
async def test_stream_of_lines_that_others_end_has_the_problem_as_its_last_line(error):
    app = Application(headers=LINES, pieces=[b'{"done": 1}\n'], error=error)
    answer = await ask(make_step(app))
    assert body_of(answer).count(b"\n") == 2
    last_line = json.loads(body_of(answer).splitlines()[-1])
    assert last_line["problem"]["status"] == 503


async def test_stream_that_ends_within_a_line_gets_no_more():
    app = Application(headers=LINES, pieces=[b'{"do'], error=Stopping())
    assert body_of(await ask(make_step(app))) == b'{"do'


@pytest.mark.parametrize("pieces", [[], [b"a part"]], ids=["before", "during"])
async def test_caller_who_left_is_not_answered(pieces):
    app = Application(pieces=pieces, error=ClientDisconnected())
    with pytest.raises(ClientDisconnected):
        await ask(make_step(app))


async def test_other_error_during_an_answer_is_raised():
    with pytest.raises(ZeroDivisionError):
        await ask(make_step(Application(error=ZeroDivisionError())))
