"""Fair shares: of amounts that callers hold, whatever the order in which they come and go, and
of turns.
"""

import asyncio
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from utils.errors import Overloaded
from utils.inference.shares import (
    Holding,
    NoRoom,
    RecentCallers,
    Shares,
    Turns,
    capacity_for,
    share_of,
    who_loses,
)

CAPACITY = 64
NAMES = st.integers(0, 199).map("caller {}".format)
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize(
    ("held", "caller", "amount", "loser"),
    [
        pytest.param({}, "a", 1000, None, id="a single one may have any size"),
        pytest.param({"a": 40}, "a", 8, None, id="three quarters for one caller"),
        pytest.param({"a": 48}, "b", 16, None, id="the rest for a newcomer"),
        pytest.param({"a": 48, "b": 16}, "c", 1, "a", id="the largest loses for a newcomer"),
        pytest.param({"a": 48, "b": 16}, "b", 8, "a", id="and for one below its share"),
        pytest.param({"a": 24, "b": 24, "c": 16}, "d", 16, "a", id="the largest one first"),
    ],
)
def test_room_is_found_or_who_loses_for_it(held, caller, amount, loser):
    assert who_loses(64, held, caller, amount) == loser


@pytest.mark.parametrize(
    ("capacity", "held", "caller", "amount", "reason"),
    [
        pytest.param(
            64,
            {"a": 48},
            "a",
            1,
            "a caller's share is 48, this one has 48 and asks for 1",
            id="alone",
        ),
        pytest.param(
            64, {"a": 24, "b": 1}, "a", 1, "share beside 1 other caller is 24", id="beside another"
        ),
        pytest.param(
            2,
            {"a": 1, "b": 1},
            "c",
            1,
            "callers have 2 of 2, and none has enough",
            id="all have one",
        ),
        pytest.param(
            64,
            {"a": 48, "b": 16},
            "c",
            40,
            "callers have 64 of 64",
            id="nobody loses if it is not enough",
        ),
        pytest.param(
            64,
            {"a": 32, "b": 32},
            "c",
            32,
            "callers have 64 of 64",
            id="nobody loses for as much as it has",
        ),
    ],
)
def test_no_room_says_why(capacity, held, caller, amount, reason):
    with pytest.raises(NoRoom, match=reason):
        who_loses(capacity, held, caller, amount)


@pytest.mark.parametrize(
    ("callers", "capacity"),
    [
        pytest.param(1, 32, id="one"),
        pytest.param(4, 32, id="few"),
        pytest.param(5, 40, id="more"),
        pytest.param(32, 256, id="many"),
        pytest.param(200, 256, id="too many"),
    ],
)
def test_capacity_grows_with_callers_up_to_a_maximum(callers, capacity):
    assert capacity_for(callers, 32, max_capacity=256) == capacity
    assert capacity_for(callers, 32, max_capacity=32) == 32


class Arrivals(RuleBasedStateMachine):
    """Callers who take, add to and give back amounts in any order."""

    held = Bundle("held")
    max_capacity = CAPACITY

    def __init__(self) -> None:
        super().__init__()
        self.shares = Shares(CAPACITY, "things", max_capacity=self.max_capacity)
        self.alive: list[Holding] = []

    @rule(target=held, caller=NAMES, amount=st.integers(0, CAPACITY))
    def take(self, caller, amount):
        holding = self.asked(
            caller, amount, lambda: self.shares.take(caller, 0, lambda: self.lost(holding))
        )
        return holding

    @rule(target=held, caller=st.sampled_from(["greedy", "greedier"]))
    def take_many(self, caller):
        holding = self.asked(
            caller, 4, lambda: self.shares.take(caller, 0, lambda: self.lost(holding))
        )
        return holding

    @rule(holding=held, amount=st.integers(1, CAPACITY))
    def grow(self, holding, amount):
        if holding in self.alive:
            self.asked(holding.caller, amount, lambda: holding)

    @rule(holding=consumes(held))
    def close(self, holding):
        if holding in self.alive:
            self.alive.remove(holding)
        holding.close()

    def asked(self, caller, amount, holding_of):
        """Ask for an amount, and check the rule on what was there before."""
        before = dict(self.shares.held)
        holding = holding_of()
        if holding not in self.alive:
            self.alive.append(holding)
        capacity = self.capacity({*before, caller})
        share = share_of(capacity, len({*before, caller}))
        kept = max(share, before.get(caller, 0) + amount)
        others_above = sum(max(0, has - kept) for name, has in before.items() if name != caller)
        room = capacity - sum(before.values()) + others_above
        may_have_it = not before.get(caller) or before[caller] + amount <= share
        try:
            holding.grow(amount)
        except Overloaded:
            assert before, "a single one has any size"
            assert not (may_have_it and amount <= room), (
                "no newcomer is refused while another has more than its share"
            )
            assert self.shares.held == before, "nobody loses anything for a refusal"
        else:
            assert may_have_it or not amount
            for name, had in before.items():
                if self.shares.held.get(name, 0) < had:
                    assert name != caller
                    assert had > share, "only those above their share lose"
        return holding

    def capacity(self, callers):
        return capacity_for(len(callers), CAPACITY, self.max_capacity)

    def lost(self, holding):
        assert holding.amount == 0
        self.alive.remove(holding)

    @invariant()
    def nothing_leaks(self):
        counted: dict[str, int] = {}
        for holding in self.alive:
            counted[holding.caller] = counted.get(holding.caller, 0) + holding.amount
        assert self.shares.held == {name: amount for name, amount in counted.items() if amount}
        assert sum(counted.values()) <= self.max_capacity

    def teardown(self):
        for holding in self.alive:
            holding.close()
        assert not self.shares.held
        assert not self.shares._holdings


Arrivals.TestCase.settings = settings(SETTINGS, max_examples=60, stateful_step_count=60)
TestArrivals = Arrivals.TestCase


class CrowdArrivals(Arrivals):
    """The same where there is more for many callers; some come as a crowd, and each wants all
    that it can get.
    """

    max_capacity = 8 * CAPACITY

    @rule(first=st.integers(0, 199), callers=st.integers(1, 60), rounds=st.integers(1, 20))
    def crowd_comes(self, first, callers, rounds):
        for number in range(rounds * callers):
            self.begin(f"caller {(first + number % callers) % 200}")

    @rule()
    def newcomer_comes(self):
        share = share_of(
            self.capacity({*self.shares.held, "newcomer"}), len({*self.shares.held, "newcomer"})
        )
        mine = [self.begin("newcomer") for _ in range(share - self.shares.held.get("newcomer", 0))]
        assert self.shares.held["newcomer"] == share, "a newcomer has its whole share at once"
        for holding in mine:
            self.alive.remove(holding)
            holding.close()

    def begin(self, caller):
        holding = self.asked(
            caller, 1, lambda: self.shares.take(caller, 0, lambda: self.lost(holding))
        )
        return holding


CrowdArrivals.TestCase.settings = settings(SETTINGS, max_examples=30, stateful_step_count=20)
TestCrowdArrivals = CrowdArrivals.TestCase


def test_lost_holding_takes_no_more():
    shares, lost = Shares(8, "things"), []
    first = shares.take("a", 6, lambda: lost.append("first"))
    shares.take("b", 2, lambda: lost.append("b"))
    shares.take("c", 2, lambda: lost.append("c"))
    assert lost == ["first"]
    first.grow(5)
    first.close()
    assert shares.held == {"b": 2, "c": 2}


class Crowd:
    """Requests that have a place until they are told to leave. The first letter of a name is the
    caller's.
    """

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.inside: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._may_leave: dict[str, asyncio.Event] = {}

    async def enter(self, *names: str) -> None:
        for name in names:
            self._may_leave[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._stay(name))
        await asyncio.sleep(0.001)

    async def leave(self, *names: str) -> None:
        for name in names:
            self._may_leave[name].set()
        await asyncio.sleep(0.001)

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await asyncio.sleep(0.001)

    async def order(self) -> list[str]:
        """Let one after another leave; return the order in which they were inside."""
        order = []
        while self.inside:
            order += self.inside
            await self.leave(*self.inside)
        return order

    async def _stay(self, name: str) -> None:
        async with self.turns.place(name[0]):
            self.inside.append(name)
            await self._may_leave[name].wait()
            self.inside.remove(name)


async def test_name_of_what_waits_is_in_the_messages():
    crowd = Crowd(Turns(1, max_waiting=1, name="new images"))
    await crowd.enter("a1", "a2")
    with pytest.raises(
        Overloaded, match="new images that wait: a caller's share is 1, this one has 1"
    ):
        crowd.turns.check("a")


async def test_waiting_callers_take_turns():
    crowd = Crowd(Turns(1, name="costly requests"))
    await crowd.enter("a1", "a2", "a3", "a4", "b1", "c1", "b2")
    assert await crowd.order() == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


async def test_newcomer_is_next():
    crowd = Crowd(Turns(1, name="costly requests"))
    await crowd.enter("a1", "b1", "a2", "b2")
    await crowd.leave("a1")
    assert crowd.inside == ["b1"]
    await crowd.enter("c1")
    await crowd.leave("b1")
    assert crowd.inside == ["c1"]


async def test_cancelled_requests_lose_no_place():
    crowd = Crowd(Turns(1, name="costly requests"))
    await crowd.enter("a1", "a2", "b1", "b2")
    await crowd.cancel("a2", "b1")
    await crowd.leave("a1")
    assert crowd.inside == ["b2"]
    await crowd.cancel("b2")
    await crowd.enter("d1")
    assert crowd.inside[-1] == "d1"


async def test_request_cancelled_as_it_gets_a_place_passes_it_on():
    crowd = Crowd(Turns(1, name="costly requests"))
    await crowd.enter("a1", "b1", "c1")
    crowd._may_leave["a1"].set()
    await asyncio.sleep(0)  # a1 leaves; b1 has the place and has not run yet
    crowd.tasks["b1"].cancel()
    await asyncio.sleep(0.001)
    assert crowd.inside == ["c1"]


async def test_caller_has_its_equal_part_of_the_places_while_others_are_active():
    now = [1.0]
    crowd = Crowd(Turns(4, name="costly requests", active=RecentCallers(lambda: now[0])))
    await crowd.enter("a1", "a2", "a3")
    assert crowd.inside == ["a1", "a2", "a3"]
    await crowd.enter("b1")
    await crowd.leave("b1")
    await crowd.enter("a4", "b2")
    assert crowd.inside == ["a1", "a2", "a3", "b2"]
    await crowd.leave("a1", "b2")
    assert crowd.inside == ["a2", "a3"]
    now[0] = 12.0
    await crowd.leave("a2")
    assert crowd.inside == ["a3", "a4"]
    await crowd.enter("a5", "a6")
    assert crowd.inside == ["a3", "a4", "a5", "a6"]


async def test_requests_beyond_the_waiting_limit_are_refused_and_a_newcomer_replaces_the_largest_ones():
    crowd = Crowd(Turns(1, max_waiting=4, name="costly requests"))
    await crowd.enter("a1", "a2", "a3", "a4")
    with pytest.raises(
        Overloaded, match="costly requests that wait: a caller's share is 3, this one has 3"
    ):
        crowd.turns.check("a")
    await crowd.enter("a5")
    with pytest.raises(Overloaded):
        crowd.tasks["a5"].result()
    await crowd.enter("b1", "c1")
    with pytest.raises(Overloaded, match="other callers needed the places"):
        crowd.tasks["a2"].result()
    assert await crowd.order() == ["a1", "b1", "c1", "a3", "a4"]


async def test_places_are_neither_lost_nor_doubled_whatever_the_order():
    chance, turns, inside = random.Random(7), Turns(3, max_waiting=20, name="costly requests"), []

    async def stay(caller: str) -> None:
        async with turns.place(caller):
            inside.append(caller)
            assert len(inside) <= 3
            try:
                await asyncio.sleep(chance.random() / 500)
            finally:
                inside.remove(caller)

    tasks = []
    for _ in range(600):
        tasks.append(asyncio.create_task(stay(chance.choice("abcdefgh"))))
        await asyncio.sleep(chance.random() / 3000)
        if chance.random() < 0.3:
            chance.choice(tasks).cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in ended} <= {type(None), asyncio.CancelledError, Overloaded}
    assert ended.count(None) > 200
    assert (turns._taken, turns._waiting, turns._room and turns._room.held) == ({}, {}, {})
