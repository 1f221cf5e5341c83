"""Running the application for a caller who may leave."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse

from utils.edge.answering import CallerLeft, answer
from utils.errors import InferenceTimeout, Stopping


class Visit:
    """One request, whose caller leaves when a test says so."""

    def __init__(self, app, seconds: float = 60) -> None:
        self.app, self.seconds = app, seconds
        self.leaves, self.cut = asyncio.Event(), asyncio.Event()
        self.sent: list[dict] = []

    async def _receive(self):
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)

    async def __call__(self):
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        await answer(
            self.app,
            scope,
            b"body",
            self._receive,
            self._send,
            seconds=self.seconds,
            cut=self.cut.wait,  # type: ignore
        )

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
        with pytest.raises(CallerLeft):
            await call
        return work, visit

    work, visit = asyncio.run(leave())
    assert work.end == "cancelled"
    assert visit.sent[: len(first)] == first
    assert LAST not in visit.sent


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


@pytest.mark.parametrize(
    ("first", "raised"),
    [
        pytest.param([], Stopping, id="before the answer"),
        pytest.param([START, LINE], CallerLeft, id="in the middle of it"),
    ],
)
def test_what_a_service_that_stops_cannot_finish_is_cancelled(first, raised):
    async def stop() -> str:
        work = Work(first, [LAST])
        visit = Visit(work)
        call = asyncio.create_task(visit())
        await work.started.wait()
        visit.cut.set()
        with pytest.raises(raised):
            await call
        return work.end

    assert asyncio.run(stop()) == "cancelled"


def test_an_answer_that_does_not_begin_in_time_is_given_up():
    async def wait() -> str:
        work = Work([], [])
        with pytest.raises(InferenceTimeout, match=r"within 0\.05 s"):
            await Visit(work, seconds=0.05)()
        return work.end

    assert asyncio.run(wait()) == "cancelled"


def test_an_answer_that_has_begun_may_take_as_long_as_it_needs():
    async def wait() -> bytes:
        work = Work([START, LINE], [LAST])
        visit = Visit(work, seconds=0.01)
        call = asyncio.create_task(visit())
        await asyncio.sleep(0.05)
        work.may_end.set()
        await call
        return visit.body

    assert asyncio.run(wait()) == b"line\nlast"
