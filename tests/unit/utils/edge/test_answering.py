"""Running the application for callers that may disconnect."""

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse

from utils.api.errors import InferenceTimeout, Stopping
from utils.edge.answering import run_application
from utils.edge.bodies import ClientDisconnected


class Visit:
    """One request, whose caller disconnects when a test sets `disconnect`."""

    def __init__(self, app, timeout_s: float = 60) -> None:
        self.app, self.timeout_s = app, timeout_s
        self.disconnect, self.abort = asyncio.Event(), asyncio.Event()
        self.sent: list[dict] = []

    async def _receive(self):
        await self.disconnect.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)

    async def __call__(self):
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        abort: Any = self.abort.wait
        await run_application(
            self.app, scope, b"body", self._receive, self._send, timeout_s=self.timeout_s, wait_aborted=abort
        )

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Work:
    """An application that works until a test sets `may_end`, and records how it ended."""

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


async def start(first: list[dict], last: list[dict], timeout_s: float = 60) -> tuple[Work, Visit, asyncio.Task]:
    """Return a request whose application has sent its first messages."""
    work = Work(first, last)
    visit = Visit(work, timeout_s)
    call = asyncio.create_task(visit())
    await work.started.wait()
    return work, visit, call


@pytest.mark.parametrize(
    ("event", "first", "raised"),
    [
        pytest.param("disconnect", [], ClientDisconnected, id="caller disconnects before answer"),
        pytest.param("disconnect", [START], ClientDisconnected, id="caller disconnects after head"),
        pytest.param("disconnect", [START, LINE], ClientDisconnected, id="caller disconnects mid-answer"),
        pytest.param("abort", [], Stopping, id="service aborts before answer"),
        pytest.param("abort", [START, LINE], ClientDisconnected, id="service aborts mid-answer"),
    ],
)
async def test_work_is_cancelled_when_the_caller_disconnects_or_the_service_aborts(event, first, raised):
    work, visit, call = await start(first, [LAST])
    getattr(visit, event).set()
    with pytest.raises(raised):
        await call
    assert work.end == "cancelled"
    assert visit.sent[: len(first)] == first
    assert LAST not in visit.sent


async def test_work_after_the_complete_answer_is_not_cancelled():
    work, visit, call = await start([START, LINE, LAST], [])
    visit.disconnect.set()
    for _ in range(10):  # iterations of the loop in which the edge could have cancelled it
        await asyncio.sleep(0)
    assert not call.done()
    work.may_end.set()
    await call
    assert work.end == "done"
    assert visit.body == b"line\nlast"


async def test_answer_is_sent_as_it_is_produced_without_time_limit_once_started():
    work, visit, call = await start([START, LINE], [LINE, LAST], timeout_s=0.01)
    assert visit.sent == [START, LINE]
    await asyncio.sleep(0.05)
    work.may_end.set()
    await call
    assert visit.body == b"line\nline\nlast"


async def test_streaming_answer_passes():
    async def lines():
        for number in range(3):
            await asyncio.sleep(0)
            yield b"%d\n" % number

    visit = Visit(StreamingResponse(lines()))
    await visit()
    assert visit.body == b"0\n1\n2\n"


async def test_application_receives_the_disconnect():
    received = []

    async def app(scope, receive, send):
        received.append((await receive())["body"])
        await PlainTextResponse("an answer")(scope, receive, send)
        received.append(await receive())

    visit = Visit(app)
    call = asyncio.create_task(visit())
    while not visit.body:
        await asyncio.sleep(0)
    assert received == [b"body"]
    visit.disconnect.set()
    await call
    assert received == [b"body", {"type": "http.disconnect"}]


async def test_application_error_passes():
    async def app(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Visit(app)()


async def test_work_is_cancelled_with_the_server():
    work, _, call = await start([], [])
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    await asyncio.sleep(0)
    assert work.end == "cancelled"


async def test_answer_that_does_not_start_in_time_is_cancelled():
    work = Work([], [])
    with pytest.raises(InferenceTimeout, match=r"within 0\.05 s"):
        await Visit(work, timeout_s=0.05)()
    assert work.end == "cancelled"
