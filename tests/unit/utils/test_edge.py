"""The ASGI edge around a stand-in application."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from utils.edge import Edge

LIMIT = 100


async def echo(scope, receive, send):
    """Answers with the body it got; /missing and /odd with errors of its own."""
    message = await receive()
    if scope["path"] == "/missing":
        await PlainTextResponse("Not Found", 404)(scope, receive, send)
    elif scope["path"] == "/odd":
        await Response(b"{}", 422, media_type="application/problem+json")(scope, receive, send)
    else:
        await Response(message["body"])(scope, receive, send)


def call(path="/", chunks=(b"",), method="POST", headers=()):
    """Status, content type and body of the answer."""
    incoming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    incoming[-1]["more_body"] = False
    sent = []

    async def receive():
        return incoming.pop(0) if incoming else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    edge = Edge(echo, LIMIT, {"/page": PlainTextResponse("a page")})
    asyncio.run(edge(scope, receive, send))
    content_type = dict(sent[0]["headers"]).get(b"content-type", b"").decode()
    return sent[0]["status"], content_type, b"".join(message.get("body", b"") for message in sent[1:])


def test_a_body_in_chunks_arrives_whole():
    assert call("/echo", [b"a" * 40, b"b" * 40])[2] == b"a" * 40 + b"b" * 40


def test_a_body_of_exactly_the_limit_passes():
    assert call("/echo", [b"a" * LIMIT])[0] == 200


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        pytest.param([b"a" * 50, b"a" * 51], (), id="in chunks without a length"),
        pytest.param([b""], [(b"content-length", b"101")], id="announced"),
        pytest.param([b"a" * 200], [(b"content-length", b"5")], id="longer than announced"),
    ],
)
def test_a_larger_body_is_refused(chunks, headers):
    status, content_type, body = call("/echo", chunks, headers=headers)
    assert (status, content_type) == (413, "application/problem+json")
    assert "at most 100 bytes" in json.loads(body)["detail"]


def test_foreign_errors_become_problems():
    status, content_type, body = call("/missing")
    assert (status, content_type) == (404, "application/problem+json")
    assert json.loads(body)["type"] == "urn:mobile-sam:not-found"
    assert "'/missing'" in json.loads(body)["detail"]


def test_problems_pass_as_they_are():
    assert call("/odd") == (422, "application/problem+json", b"{}")


def test_pages_answer_get_and_nothing_else():
    assert call("/page", method="GET")[2] == b"a page"
    assert call("/page", [b"body"], method="POST")[2] == b"body"


class Visit:
    """One request, whose caller leaves when a test says so."""

    def __init__(self, app, *, half_a_body: bool = False) -> None:
        self.edge = Edge(app, LIMIT, {})
        self.leaves = asyncio.Event()
        self.sent: list[dict] = []
        self._incoming = [{"type": "http.request", "body": b"body", "more_body": half_a_body}]

    async def _receive(self):
        if self._incoming:
            return self._incoming.pop()
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)

    async def __call__(self):
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        await self.edge(scope, self._receive, self._send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Work:
    """An application that works until it is let, and keeps how that ended."""

    def __init__(self, first: list[dict], last: list[dict]) -> None:
        self.first, self.last = first, last
        self.started, self.may_end = asyncio.Event(), asyncio.Event()
        self.end = ""

    async def __call__(self, scope, receive, send):
        try:
            for message in self.first:
                await send(message)
            self.started.set()
            await self.may_end.wait()
            for message in self.last:
                await send(message)
            self.end = "done"
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise


START = {"type": "http.response.start", "status": 200, "headers": []}
LINE = {"type": "http.response.body", "body": b"line\n", "more_body": True}
LAST = {"type": "http.response.body", "body": b"last"}


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([], id="before the answer"),
        pytest.param([START], id="after its head"),
        pytest.param([START, LINE], id="in the middle of it"),
    ],
)
def test_the_work_for_a_caller_who_leaves_is_cancelled(first):
    async def leave() -> tuple[Work, Visit]:
        work = Work(first, [LAST])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        visit.leaves.set()
        await call
        return work, visit

    work, visit = asyncio.run(leave())
    assert work.end == "cancelled"
    assert visit.sent[: len(first)] == first
    assert LAST not in visit.sent


def test_no_work_begins_for_half_a_body():
    async def leave() -> Work:
        work = Work([], [])
        visit = Visit(work, half_a_body=True)
        visit.leaves.set()
        await visit()
        return work

    assert not asyncio.run(leave()).started.is_set()


@pytest.mark.parametrize("half_a_body", [True, False], ids=["half a body", "a whole body"])
def test_what_lies_outside_is_told_of_an_end_without_an_answer(half_a_body):
    async def leave() -> Visit:
        visit = Visit(Work([], []), half_a_body=half_a_body)
        visit.leaves.set()
        await visit()
        return visit

    # BentoML's limit on time waits for the first message of an answer, or until it is over.
    assert [message["type"] for message in asyncio.run(leave()).sent] == ["http.response.start", "http.response.body"]


def test_work_after_the_whole_answer_is_not_cancelled():
    async def leave() -> tuple[Work, Visit]:
        work = Work([START, LINE, LAST], [])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        visit.leaves.set()
        for _ in range(10):  # turns of the loop, in which the edge could have cancelled it
            await asyncio.sleep(0)
        assert not call.done()
        work.may_end.set()
        await call
        return work, visit

    work, visit = asyncio.run(leave())
    assert work.end == "done"
    assert visit.body == b"line\nlast"


def test_a_caller_who_stays_gets_the_answer_as_it_comes():
    async def stay() -> Visit:
        work = Work([START, LINE], [LINE, LAST])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        assert visit.sent == [START, LINE]
        work.may_end.set()
        await call
        return visit

    assert asyncio.run(stay()).body == b"line\nline\nlast"


def test_a_streaming_answer_passes():
    async def lines():
        for number in range(3):
            await asyncio.sleep(0)
            yield b"%d\n" % number

    visit = Visit(StreamingResponse(lines()))
    asyncio.run(visit())
    assert visit.body == b"0\n1\n2\n"


def test_an_application_that_waits_for_the_caller_to_leave_is_told():
    told = []

    async def app(scope, receive, send):
        told.append((await receive())["body"])
        await PlainTextResponse("an answer")(scope, receive, send)
        told.append(await receive())

    async def leave() -> None:
        visit = Visit(app)
        call = asyncio.create_task(visit())
        while not visit.body:
            await asyncio.sleep(0)
        assert told == [b"body"]
        visit.leaves.set()
        await call

    asyncio.run(leave())
    assert told == [b"body", {"type": "http.disconnect"}]


def test_an_error_of_the_application_passes():
    async def app(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(Visit(app)())


def test_work_ends_with_the_server():
    async def stop() -> str:
        work = Work([], [])
        call = asyncio.create_task(Visit(work)())
        await work.started.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await asyncio.sleep(0)
        return work.end

    assert asyncio.run(stop()) == "cancelled"
