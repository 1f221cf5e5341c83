"""Limits on requests in progress and their bytes, and fair sharing of slots among callers."""

import asyncio
import contextlib

import pytest

from utils.api.errors import Overloaded
from utils.edge.admission import ActiveCallers, Admission, FairSemaphore


@contextlib.contextmanager
def slots(admission: Admission, caller: str, count: int):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(admission.slot(caller)) for _ in range(count)]


def test_one_caller_gets_three_quarters_of_the_slots():
    admission = Admission(8, 0)
    with slots(admission, "a", 6):
        with pytest.raises(Overloaded, match=r"too many of your requests in progress \(6\)"):
            admission.check("a")
        with slots(admission, "b", 2), pytest.raises(Overloaded, match=r"too many requests in progress \(8\)"):
            admission.check("b")
        admission.check("b")
    admission.check("a")


def test_request_no_longer_counts_once_its_answer_starts():
    admission = Admission(4, 0, 1000)
    with slots(admission, "a", 3) as (first, *_):
        with pytest.raises(Overloaded):
            admission.check("a")
        first(100)
        admission.check("a")
        assert admission.in_progress == 3
    assert admission.in_progress == 0
    with slots(admission, "a", 3):
        pass


def test_one_caller_gets_three_quarters_of_the_body_bytes():
    admission = Admission(9, 1000)
    admission.count_body_bytes(750, "a")
    with pytest.raises(Overloaded):
        admission.count_body_bytes(1, "a")
    admission.count_body_bytes(250, "b")
    with pytest.raises(Overloaded, match=r"request bodies take too much memory \(1000 bytes\)"):
        admission.count_body_bytes(1, "c")
    admission.count_body_bytes(-750, "a")
    admission.count_body_bytes(750, "a")


class Crowd:
    """Requests that hold a slot until they are told to leave. The first letter of a name is the caller's."""

    def __init__(self, semaphore: FairSemaphore) -> None:
        self.semaphore = semaphore
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._may_leave: dict[str, asyncio.Event] = {}

    async def enter(self, *names: str) -> None:
        for name in names:
            self._may_leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await asyncio.sleep(0.001)

    async def leave(self, name: str) -> None:
        self._may_leave[name].set()
        await asyncio.sleep(0.001)

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await asyncio.sleep(0.001)

    async def _stay(self, name: str) -> None:
        async with self.semaphore.slot(name[0]):
            self.inside.append(name)
            await self._may_leave[name].wait()
            self.inside.remove(name)


async def test_waiting_callers_take_turns():
    crowd = Crowd(FairSemaphore(1))
    await crowd.enter("a1", "a2", "a3", "a4", "b1", "c1", "b2")
    order = []
    while crowd.inside:
        order += crowd.inside
        await crowd.leave(crowd.inside[0])
    assert order == ["a1", "b1", "a2", "c1", "b2", "a3", "a4"]


async def test_newcomer_waits_for_one_request_of_each_busy_caller():
    crowd = Crowd(FairSemaphore(2))
    await crowd.enter("a1", "b1", "a2", "b2")
    await crowd.leave("a1")
    await crowd.leave("b1")
    assert crowd.inside == ["a2", "b2"]
    await crowd.enter("a3", "b3", "c1")
    await crowd.leave("a2")
    assert crowd.inside == ["b2", "c1"]


async def test_cancelled_requests_lose_no_slot():
    crowd = Crowd(FairSemaphore(1))
    await crowd.enter("a1", "a2", "b1", "b2")
    await crowd.cancel("a2", "b1")
    await crowd.leave("a1")
    assert crowd.inside == ["b2"]
    await crowd.cancel("b2")
    await crowd.enter("d1")
    assert crowd.inside[-1] == "d1"


async def test_request_cancelled_as_it_gets_a_slot_passes_it_on():
    crowd = Crowd(FairSemaphore(1))
    await crowd.enter("a1", "b1", "c1")
    crowd._may_leave["a1"].set()
    await asyncio.sleep(0)  # a1 leaves; b1 has the slot and has not run yet
    crowd.tasks["b1"].cancel()
    await asyncio.sleep(0.001)
    assert crowd.inside == ["c1"]


async def test_one_caller_gets_half_of_the_slots_while_others_are_active():
    now = [0.0]
    crowd = Crowd(FairSemaphore(4, active=ActiveCallers(lambda: now[0])))
    await crowd.enter("a1", "a2", "a3")
    assert crowd.inside == ["a1", "a2", "a3"]
    await crowd.enter("b1")
    await crowd.leave("b1")
    await crowd.enter("a4", "b2")
    assert crowd.inside == ["a1", "a2", "a3", "b2"]
    for name in ("a1", "b2"):
        await crowd.leave(name)
    assert crowd.inside == ["a2", "a3"]
    now[0] = 11.0
    await crowd.leave("a2")
    assert crowd.inside == ["a3", "a4"]
    await crowd.enter("a5", "a6")
    assert crowd.inside == ["a3", "a4", "a5", "a6"]


async def test_requests_beyond_the_waiting_limit_are_refused():
    crowd = Crowd(FairSemaphore(1, max_waiting=2))
    await crowd.enter("a1", "a2", "b1")
    with pytest.raises(Overloaded, match=r"too many requests of this cost are waiting \(2\)"):
        async with crowd.semaphore.slot("c"):
            pytest.fail("let in")
    await crowd.leave("a1")
    await crowd.enter("c1")
    assert not crowd.tasks["c1"].done()
