"""Large bodies are read in turns."""

from __future__ import annotations

import asyncio

import pytest

from utils.edge import bodies
from utils.edge.admission import Admission
from utils.edge.bodies import Body
from utils.edge.callers import ADDRESS
from utils.turns import Turns

LARGE = bodies.LARGE_BYTES + 1


class Sender:
    """Sends a body when told to, as uvicorn hands it on: nothing is lost where nobody waits for it."""

    def __init__(self, address: str, size: int | None = LARGE) -> None:
        self.address, self.size = address, size
        self._pieces: asyncio.Queue[dict] = asyncio.Queue()
        self.looked = 0
        """How often somebody waited for a piece."""

    def send(self, piece: bytes, *, more: bool = False) -> None:
        self._pieces.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    async def receive(self) -> dict:
        self.looked += 1
        return await self._pieces.get()

    async def read(self, turns: Turns) -> bytes:
        ADDRESS.set(self.address)
        headers = [] if self.size is None else [(b"content-length", str(self.size).encode())]
        body = Body({"headers": headers}, self.receive, Admission(9, 10**9), turns)
        return await body.read(10**9, 20)


def start(senders: list[Sender], turns: Turns) -> list[asyncio.Task[bytes]]:
    return [asyncio.create_task(sender.read(turns)) for sender in senders]


async def soon(condition) -> None:
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it did not come")


@pytest.mark.parametrize("size", [LARGE, None], ids=["large", "of unknown length"])
def test_as_many_are_read_at_once_as_have_a_turn(size, monkeypatch):
    monkeypatch.setattr(bodies, "IDLE_SECONDS", 60)
    monkeypatch.setattr(bodies, "TURN_SECONDS", 60)

    async def scenario() -> None:
        senders = [Sender("a", size) for _ in range(4)]
        reads = start(senders, Turns(2))
        await soon(lambda: sum(sender.looked for sender in senders) == 2)
        await asyncio.sleep(0.01)
        assert [sender.looked for sender in senders] == [1, 1, 0, 0]
        for sender in senders:
            sender.send(b"one ", more=True)
            sender.send(b"two")
        assert await asyncio.gather(*reads) == [b"one two"] * 4

    asyncio.run(scenario())


def test_small_bodies_wait_for_no_turn():
    async def scenario() -> None:
        senders = [Sender("a", bodies.LARGE_BYTES) for _ in range(4)]
        reads = start(senders, Turns(1))
        await soon(lambda: all(sender.looked for sender in senders))
        for sender in senders:
            sender.send(b"all of it")
        assert await asyncio.gather(*reads) == [b"all of it"] * 4

    asyncio.run(scenario())


def test_one_who_sends_nothing_does_not_keep_the_turn():
    async def scenario() -> None:
        slow, quick = Sender("a"), Sender("b")
        reads = start([slow, quick], Turns(1))
        quick.send(b"all of it")
        assert await reads[1] == b"all of it"
        slow.send(b"late")
        assert await reads[0] == b"late"

    asyncio.run(scenario())


def test_one_who_sends_without_end_shares_the_turns(monkeypatch):
    monkeypatch.setattr(bodies, "TURN_SECONDS", 0.02)

    async def scenario() -> None:
        endless, other = Sender("a"), Sender("b")
        reads = start([endless, other], Turns(1))

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

    asyncio.run(scenario())
