"""Reading of large bodies in turns."""

import asyncio

import pytest

from utils.edge import bodies
from utils.edge.admission import Admission, FairSemaphore
from utils.edge.bodies import Body
from utils.observability.context import ADDRESS

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

    async def read(self, large_bodies: FairSemaphore) -> bytes:
        ADDRESS.set(self.address)
        headers = [] if self.size is None else [(b"content-length", str(self.size).encode())]
        body = Body({"headers": headers}, self.receive, Admission(9, 10**9), large_bodies)
        return await body.read(10**9, 20)


def start(senders: list[Sender], large_bodies: FairSemaphore) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(sender.read(large_bodies)) for sender in senders]


async def wait_until(condition) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("the condition did not become true")


@pytest.mark.parametrize("size", [LARGE, None], ids=["large", "unknown length"])
async def test_bounded_number_of_large_bodies_is_read_at_once(size, monkeypatch):
    monkeypatch.setattr(bodies, "IDLE_S", 60)
    monkeypatch.setattr(bodies, "TURN_S", 60)
    senders = [Sender("a", size) for _ in range(4)]
    reads = start(senders, FairSemaphore(2))
    await wait_until(lambda: sum(sender.receive_calls for sender in senders) == 2)
    await asyncio.sleep(0.01)
    assert [sender.receive_calls for sender in senders] == [1, 1, 0, 0]
    for sender in senders:
        sender.send(b"one ", more=True)
        sender.send(b"two")
    assert await asyncio.gather(*reads) == [b"one two"] * 4


async def test_small_bodies_are_read_without_waiting_for_a_turn():
    senders = [Sender("a", bodies.LARGE_BODY_BYTES) for _ in range(4)]
    reads = start(senders, FairSemaphore(1))
    await wait_until(lambda: all(sender.receive_calls for sender in senders))
    for sender in senders:
        sender.send(b"all of it")
    assert await asyncio.gather(*reads) == [b"all of it"] * 4


async def test_idle_sender_loses_its_turn():
    slow, quick = Sender("a"), Sender("b")
    reads = start([slow, quick], FairSemaphore(1))
    quick.send(b"all of it")
    assert await reads[1] == b"all of it"
    slow.send(b"late")
    assert await reads[0] == b"late"


async def test_endless_sender_shares_the_turns(monkeypatch):
    monkeypatch.setattr(bodies, "TURN_S", 0.02)
    endless, other = Sender("a"), Sender("b")
    reads = start([endless, other], FairSemaphore(1))

    async def send() -> None:
        while True:
            endless.send(b"more", more=True)
            await asyncio.sleep(0.001)

    sending = asyncio.create_task(send())
    other.send(b"all of it")
    assert await reads[1] == b"all of it"
    sending.cancel()
    endless.send(b".")
    assert (await reads[0]).endswith(b"more.")


@pytest.mark.parametrize("others", [True, False], ids=["others active", "alone"])
async def test_large_body_is_read_slowly_only_while_others_are_active(others, monkeypatch):
    large_bodies = FairSemaphore(2)
    if others:
        async with large_bodies.slot("b"):
            pass
    sender = Sender("a", bodies.SHARED_BYTES_PER_S)
    delays: list[float] = []
    sleep = asyncio.sleep

    async def record(delay_s: float) -> None:
        delays.append(delay_s)
        await sleep(0)

    monkeypatch.setattr("utils.edge.bodies.asyncio.sleep", record)
    sender.send(b"x" * (bodies.SHARED_BYTES_PER_S // 2), more=True)
    sender.send(b"end")
    assert len(await sender.read(large_bodies)) == bodies.SHARED_BYTES_PER_S // 2 + 3
    assert all(0 < delay_s <= 0.5 for delay_s in delays)
    assert bool(delays) is others
