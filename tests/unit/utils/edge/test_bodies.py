"""Reading of large bodies in turns, and work that ends with its caller."""

import asyncio

import pytest

from utils.edge import bodies
from utils.edge.admission import Admission
from utils.edge.bodies import Body, ClientDisconnected, run_application
from utils.errors import InferenceTimeout, Stopping
from utils.inference.shares import Turns

LARGE = bodies.LARGE_BODY_BYTES + 1


class Sender:
    """A caller that sends a body when told to, buffered as in uvicorn."""

    def __init__(self, address: str, size: int | None = LARGE) -> None:
        self.address, self.size = address, size
        self._pieces: asyncio.Queue[dict] = asyncio.Queue()
        self.receive_calls = 0

    def send(self, piece: bytes, *, more: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    async def receive(self) -> dict:
        self.receive_calls += 1
        return await self._pieces.get()

    async def read(self, large_bodies: Turns) -> bytes:
        headers = [] if self.size is None else [(b"content-length", str(self.size).encode())]
        body = Body({"headers": headers}, self.receive, large_bodies, self.address)
        holding = Admission(9, 10**9).bodies.take(self.address, 0, lambda: pytest.fail("lost"))
        return await body.read(10**9, 20, holding)


def read_all(senders: list[Sender], large_bodies: Turns) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(sender.read(large_bodies)) for sender in senders]


async def wait_until(condition) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("the condition did not become true")


@pytest.mark.parametrize(
    ("size", "at_once"),
    [
        pytest.param(LARGE, 2, id="large"),
        pytest.param(None, 2, id="unknown-length"),
        pytest.param(LARGE - 1, 4, id="small"),
    ],
)
async def test_bounded_number_of_large_bodies_is_read_at_once(size, at_once, monkeypatch):
    monkeypatch.setattr(bodies, "TURN_S", 60)
    monkeypatch.setattr(bodies, "IDLE_S", 60)
    senders = [Sender("a", size) for _ in range(4)]
    reads = read_all(senders, Turns(2, name="large bodies"))
    await wait_until(lambda: sum(sender.receive_calls for sender in senders) == at_once)
    await asyncio.sleep(0.01)
    assert [sender.receive_calls for sender in senders] == ([1] * at_once + [0] * 4)[:4]
    for sender in senders:
        sender.send(b"one ", more=True)
        sender.send(b"two")
    assert await asyncio.gather(*reads) == [b"one two"] * 4


async def test_idle_and_endless_senders_share_the_turns():
    idle, endless, other = Sender("i"), Sender("a"), Sender("b")
    reads = read_all([idle, endless, other], Turns(1, name="large bodies"))

    async def send() -> None:
        while True:
            endless.send(b"more", more=True)
            await asyncio.sleep(0.001)

    sending = asyncio.create_task(send())
    other.send(b"all of it")
    assert await reads[2] == b"all of it"
    sending.cancel()
    endless.send(b".")
    assert (await reads[1]).endswith(b"more.")
    idle.send(b"late")
    assert await reads[0] == b"late"


START = {"type": "http.response.start", "status": 200, "headers": []}
LINE = {"type": "http.response.body", "body": b"line\n", "more_body": True}
LAST = {"type": "http.response.body", "body": b"last"}


class Work:
    """A request whose application sends its first messages, and the last ones once a test sets
    `may_end`.
    """

    def __init__(self, first: list[dict], last: list[dict], timeout_s: float = 60) -> None:
        self.first, self.last, self.timeout_s = first, last, timeout_s
        self.started, self.may_end, self.disconnect = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self.admission = Admission(1, 1)
        self.sent: list[dict] = []
        self.end = ""

    async def app(self, scope, receive, send):
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

    async def run(self) -> None:
        async def receive() -> dict:
            await self.disconnect.wait()
            return {"type": "http.disconnect"}

        async def send(message) -> None:
            self.sent.append(message)

        with self.admission.endable("shutting down"):
            await run_application(
                self.app, {"type": "http"}, b"body", receive, send, timeout_s=self.timeout_s
            )

    async def start(self) -> asyncio.Task[None]:
        """Run until the first messages are sent."""
        call = asyncio.create_task(self.run())
        await self.started.wait()
        return call


@pytest.mark.parametrize(
    "first", [[], [START], [START, LINE]], ids=["before-answer", "after-head", "mid-answer"]
)
@pytest.mark.parametrize(
    ("end", "raised"),
    [
        pytest.param(
            lambda work: work.disconnect.set(), ClientDisconnected, id="caller-disconnects"
        ),
        pytest.param(lambda work: work.admission.abort_in_flight(), Stopping, id="service-aborts"),
    ],
)
async def test_work_is_cancelled_when_the_caller_disconnects_or_the_service_aborts(
    end, raised, first
):
    work = Work(first, [LAST])
    call = await work.start()
    end(work)
    with pytest.raises(raised):
        await call
    assert work.end == "cancelled"
    assert work.sent == first


async def test_work_after_the_complete_answer_is_not_cancelled():
    work = Work([START, LINE, LAST], [])
    call = await work.start()
    work.disconnect.set()
    for _ in range(10):  # iterations of the loop in which the edge could have cancelled it
        await asyncio.sleep(0)
    assert not call.done()
    work.may_end.set()
    await call
    assert work.end == "done"


async def test_answer_is_sent_as_it_is_produced_without_time_limit_once_started():
    work = Work([START, LINE], [LINE, LAST], timeout_s=0.5)
    call = await work.start()
    assert work.sent == [START, LINE]
    await asyncio.sleep(0.6)
    work.may_end.set()
    await call
    assert work.sent == [START, LINE, LINE, LAST]


async def test_answer_that_does_not_start_in_time_is_cancelled():
    work = Work([], [], timeout_s=0.05)
    with pytest.raises(InferenceTimeout, match=r"within 0\.05 s"):
        await work.run()
    assert work.end == "cancelled"
