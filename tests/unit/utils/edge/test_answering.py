"""Running the application for callers that may disconnect."""

from __future__ import annotations

import asyncio

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
        await run_application(
            self.app,
            scope,
            b"body",
            self._receive,
            self._send,
            timeout_s=self.timeout_s,
            wait_aborted=self.abort.wait,  # type: ignore
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


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([], id="before-answer"),
        pytest.param([START], id="after-head"),
        pytest.param([START, LINE], id="mid-answer"),
    ],
)
def test_work_is_cancelled_when_the_caller_disconnects(first):
    async def leave() -> tuple[Work, Visit]:
        work = Work(first, [LAST])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        visit.disconnect.set()
        with pytest.raises(ClientDisconnected):
            await call
        return work, visit

    work, visit = asyncio.run(leave())
    assert work.end == "cancelled"
    assert visit.sent[: len(first)] == first
    assert LAST not in visit.sent


def test_work_after_the_complete_answer_is_not_cancelled():
    async def leave() -> tuple[Work, Visit]:
        work = Work([START, LINE, LAST], [])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        visit.disconnect.set()
        for _ in range(10):  # iterations of the loop in which the edge could have cancelled it
            await asyncio.sleep(0)
        assert not call.done()
        work.may_end.set()
        await call
        return work, visit

    work, visit = asyncio.run(leave())
    assert work.end == "done"
    assert visit.body == b"line\nlast"


def test_answer_is_sent_as_it_is_produced():
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


def test_streaming_answer_passes():
    async def lines():
        for number in range(3):
            await asyncio.sleep(0)
            yield b"%d\n" % number

    visit = Visit(StreamingResponse(lines()))
    asyncio.run(visit())
    assert visit.body == b"0\n1\n2\n"


def test_application_receives_the_disconnect():
    received = []

    async def app(scope, receive, send):
        received.append((await receive())["body"])
        await PlainTextResponse("an answer")(scope, receive, send)
        received.append(await receive())

    async def leave() -> None:
        visit = Visit(app)
        call = asyncio.create_task(visit())
        while not visit.body:
            await asyncio.sleep(0)
        assert received == [b"body"]
        visit.disconnect.set()
        await call

    asyncio.run(leave())
    assert received == [b"body", {"type": "http.disconnect"}]


def test_application_error_passes():
    async def app(scope, receive, send):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(Visit(app)())


def test_work_is_cancelled_with_the_server():
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


@pytest.mark.parametrize(
    ("first", "raised"),
    [
        pytest.param([], Stopping, id="before-answer"),
        pytest.param([START, LINE], ClientDisconnected, id="mid-answer"),
    ],
)
def test_abort_cancels_the_work(first, raised):
    async def stop() -> str:
        work = Work(first, [LAST])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        visit.abort.set()
        with pytest.raises(raised):
            await call
        return work.end

    assert asyncio.run(stop()) == "cancelled"


def test_answer_that_does_not_start_in_time_is_cancelled():
    async def wait() -> str:
        work = Work([], [])
        with pytest.raises(InferenceTimeout, match=r"within 0\.05 s"):
            await Visit(work, timeout_s=0.05)()
        return work.end

    assert asyncio.run(wait()) == "cancelled"


def test_started_answer_has_no_time_limit():
    async def wait() -> bytes:
        work = Work([START, LINE], [LAST])
        visit = Visit(work, timeout_s=0.01)
        call = asyncio.create_task(visit())
        await asyncio.sleep(0.05)
        work.may_end.set()
        await call
        return visit.body

    assert asyncio.run(wait()) == b"line\nlast"
