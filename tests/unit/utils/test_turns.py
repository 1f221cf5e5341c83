"""Who asks a model next."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from utils.errors import Overloaded
from utils.turns import Turns


class Crowd:
    """Requests at a model: each notes when it is let in, and leaves when it is told to."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._may_leave: dict[str, asyncio.Event] = {}

    async def comes(self, *names: str) -> None:
        """Requests come; the first letter of a name is its caller's."""
        for name in names:
            self._may_leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await asyncio.sleep(0.001)

    async def leaves(self, name: str) -> None:
        self._may_leave[name].set()
        await asyncio.sleep(0.001)

    async def gives_up(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await asyncio.sleep(0.001)

    async def _stay(self, name: str) -> None:
        async with self.turns.turn(name[0]):
            self.inside.append(name)
            await self._may_leave[name].wait()
            self.inside.remove(name)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 10))


def test_as_many_are_let_in_as_there_are_places():
    async def scenario() -> None:
        crowd = Crowd(Turns(2))
        await crowd.comes("a1", "b1", "c1")
        assert crowd.inside == ["a1", "b1"]
        await crowd.leaves("b1")
        assert crowd.inside == ["a1", "c1"]

    run(scenario())


def test_a_caller_with_one_request_is_not_behind_all_of_another():
    async def scenario() -> None:
        crowd = Crowd(Turns(1))
        await crowd.comes("a1", "a2", "a3", "a4", "b1", "c1", "b2")
        order = []
        while crowd.inside:
            order += crowd.inside
            await crowd.leaves(crowd.inside[0])
        assert order == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]

    run(scenario())


def test_places_outlive_those_who_give_up():
    async def scenario() -> None:
        crowd = Crowd(Turns(1))
        await crowd.comes("a1", "a2", "b1", "b2")
        await crowd.gives_up("a2", "b1")
        await crowd.leaves("a1")
        assert crowd.inside == ["b2"]
        await crowd.gives_up("b2")
        await crowd.comes("d1")
        assert crowd.inside[-1] == "d1"

    run(scenario())


def test_one_who_gives_up_as_they_are_let_in_leaves_the_place_to_the_next():
    async def scenario() -> None:
        crowd = Crowd(Turns(1))
        await crowd.comes("a1", "b1", "c1")
        crowd._may_leave["a1"].set()
        await asyncio.sleep(0)  # a1 leaves, b1 is let in and has not run yet
        crowd.tasks["b1"].cancel()
        await asyncio.sleep(0.001)
        assert crowd.inside == ["c1"]

    run(scenario())


def test_while_others_are_about_one_caller_has_half_of_the_places():
    now = [0.0]

    async def scenario() -> None:
        crowd = Crowd(Turns(4, clock=lambda: now[0]))
        await crowd.comes("a1", "a2", "a3")
        assert crowd.inside == ["a1", "a2", "a3"]
        await crowd.comes("b1")
        await crowd.leaves("b1")
        await crowd.comes("a4", "b2")
        assert crowd.inside == ["a1", "a2", "a3", "b2"]
        for name in ("a1", "b2"):
            await crowd.leaves(name)
        assert crowd.inside == ["a2", "a3"]
        now[0] = 11.0
        await crowd.leaves("a2")
        assert crowd.inside == ["a3", "a4"]
        await crowd.comes("a5", "a6")
        assert crowd.inside == ["a3", "a4", "a5", "a6"]

    run(scenario())


def test_more_than_may_wait_are_refused():
    async def scenario() -> None:
        crowd = Crowd(Turns(1, most_waiting=2))
        await crowd.comes("a1", "a2", "b1")
        with pytest.raises(Overloaded, match="2 requests that take as long as this one wait already"):
            async with crowd.turns.turn("c"):
                pytest.fail("let in")
        await crowd.leaves("a1")
        await crowd.comes("c1")
        assert not crowd.tasks["c1"].done()

    run(scenario())
