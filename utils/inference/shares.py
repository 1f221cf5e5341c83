"""Fair shares of what callers take from one worker: requests, bytes, and turns at work.

One rule, whatever is shared:

- A caller's share is what all may have, divided by the callers who are there. Above its share a
  caller gets no more. What all may have is a fixed amount, or grows with the callers who are there:
  see `capacity_for`.
- A caller who has nothing finds room: a quarter is kept for such callers.
- If there is no room for somebody within its share, the caller who has most loses its oldest
  holding. The same for somebody who has nothing and asks for more than a share, if that caller has
  still more.

What takes a moment only, such as a turn of a model, is waited for instead: see `Turns`.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from utils.errors import Overloaded

ACTIVE_S = 10.0
"""Time for which a caller counts as active after a request."""
FEW_CALLERS = 4
"""Number of callers above which a capacity that grows does so, by its part for one of so many."""


class NoRoom(Exception):
    """There is no room for a caller now; the message says why."""


def share_of(capacity: int, callers: int) -> int:
    """Return how much each of so many callers may have: an equal part of three quarters, at
    least 1.
    """
    return max(1, (capacity - capacity // 4) // callers)


def capacity_for(callers: int, capacity: int, max_capacity: int) -> int:
    """Return what so many callers may have together.

    Beyond a few, each brings room of its own, so that the shares of the others do not shrink: with
    a capacity of 32 and a maximum of 256, a share is 24, 12, 8, 6 beside 0 to 3 others, and stays 6
    beside up to 31.

    Args:
        callers: number of callers.
        capacity: what few callers may have.
        max_capacity: what any number of callers may have.
    """
    return max(capacity, min(max_capacity, callers * capacity // FEW_CALLERS))


def who_loses(
    capacity: int,
    held: Mapping[str, int],
    caller: str,
    amount: int,
    shown: Callable[[int], str] = str,
) -> str | None:
    """Return the caller who must lose a holding before another may take an amount.

    None: there is room.

    Args:
        capacity: what all callers together may have. One alone may take any amount at once.
        held: what each caller has; callers who have nothing are left out.
        caller: who asks.
        amount: what it asks for.
        shown: writes an amount in a message.

    Raises:
        NoRoom: the caller would have more than its share, or nobody else has.
    """
    total = sum(held.values())
    of_caller = held.get(caller, 0)
    if not total:
        return None
    others = len(held) - (caller in held)
    share = share_of(capacity, others + 1)
    if of_caller and of_caller + amount > share:
        beside = f" beside {others} other caller{'s' * (others > 1)}" if others else ""
        has = f"this one has {shown(of_caller)} and asks for {shown(amount)}"
        raise NoRoom(f"a caller's share{beside} is {shown(share)}, {has}")
    free = capacity - total
    if amount <= free:
        return None
    # Nobody loses for somebody who would then have as much: they would lose to each other in turn.
    safe = max(share, of_caller + amount)
    above = {name: has - safe for name, has in held.items() if name != caller and has > safe}
    if amount > free + sum(above.values()):
        room = f"callers have {shown(total)} of {shown(capacity)}"
        raise NoRoom(f"{room}, and none has enough above its share for {shown(amount)} more")
    return max(above, key=lambda name: held[name])


class Holding:
    """What a request has of a resource, until it is closed or lost."""

    def __init__(self, shares: "Shares", caller: str, lose: Callable[[], None]) -> None:
        self._shares, self.caller, self._lose = shares, caller, lose
        self.amount = 0
        self._is_lost = False

    def grow(self, amount: int) -> None:
        """Take more.

        Raises:
            Overloaded: there is no room.
        """
        if not self._is_lost:
            self._shares.add(self, amount)

    def close(self) -> None:
        """Give everything back."""
        self._shares.remove(self)

    def lose(self) -> None:
        """Give everything back to another caller, and end the request."""
        self._is_lost = True
        self.close()
        self._lose()


class Shares:
    """A resource of which callers hold amounts, such as bytes of their requests' bodies."""

    def __init__(
        self,
        capacity: int,
        name: str,
        shown: Callable[[int], str] = str,
        *,
        max_capacity: int | None = None,
    ) -> None:
        """Start with nothing taken.

        Args:
            capacity: what all callers together may have.
            name: what is counted, for messages, such as `requests in progress`.
            shown: writes an amount in a message.
            max_capacity: what many callers together may have, see `capacity_for`; None: no more
                than few.
        """
        self.capacity, self.name, self._shown = capacity, name, shown
        self.max_capacity = capacity if max_capacity is None else max_capacity
        self.held: dict[str, int] = {}
        """What each caller has, without those who have nothing."""
        self._holdings: dict[str, dict[Holding, None]] = {}
        """Each caller's holdings, the oldest first."""

    def check(self, caller: str, amount: int = 1) -> None:
        """Check that a caller may take an amount; nobody loses anything yet.

        Raises:
            Overloaded: there is no room.
        """
        self._loser(self._capacity(caller), caller, amount)

    def take(self, caller: str, amount: int, lose: Callable[[], None]) -> Holding:
        """Return a new holding of an amount; `lose` is called if another caller gets its room.

        Raises:
            Overloaded: there is no room.
        """
        holding = Holding(self, caller, lose)
        holding.grow(amount)
        return holding

    def add(self, holding: Holding, amount: int) -> None:
        """Add an amount to a holding; see `Holding.grow`."""
        if not amount:
            return
        caller = holding.caller
        capacity = self._capacity(caller)  # also once somebody has lost all that it had
        while loser := self._loser(capacity, caller, amount):
            next(iter(self._holdings[loser])).lose()
        holding.amount += amount
        self.held[caller] = self.held.get(caller, 0) + amount
        self._holdings.setdefault(caller, {})[holding] = None

    def remove(self, holding: Holding) -> None:
        """Take everything from a holding; see `Holding.close`."""
        if not holding.amount:
            return
        caller = holding.caller
        self.held[caller] -= holding.amount
        del self._holdings[caller][holding]
        if not self.held[caller]:
            del self.held[caller], self._holdings[caller]
        holding.amount = 0

    def _capacity(self, caller: str) -> int:
        """Return what the callers may have together once another one is there."""
        callers = len(self.held) + (caller not in self.held)
        return capacity_for(callers, self.capacity, self.max_capacity)

    def _loser(self, capacity: int, caller: str, amount: int) -> str | None:
        """Return the caller who must lose a holding first, see `who_loses`.

        Raises:
            Overloaded: there is no room.
        """
        try:
            return who_loses(capacity, self.held, caller, amount, self._shown)
        except NoRoom as error:
            raise Overloaded(f"{self.name}: {error}; retry later") from None


class RecentCallers:
    """When callers were last noted, for `ACTIVE_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._noted: OrderedDict[str, float] = OrderedDict()

    def note(self, caller: str) -> None:
        """Note a caller now."""
        self._noted[caller] = self._clock()
        self._noted.move_to_end(caller)
        self._forget()

    def has_others(self, caller: str) -> bool:
        """Return whether another caller was noted."""
        return any(other != caller for other in self.names())

    def names(self) -> Iterable[str]:
        """Return the callers, the longest ago first."""
        self._forget()
        return self._noted.keys()

    def last(self, caller: str) -> float:
        """Return when a caller was last noted, 0 if it was not."""
        self._forget()
        return self._noted.get(caller, 0.0)

    def _forget(self) -> None:
        limit = self._clock() - ACTIVE_S
        while self._noted and next(iter(self._noted.values())) < limit:
            self._noted.popitem(last=False)


class Turns:
    """A few places at which callers take turns, however many requests each of them has.

    A free place goes to the caller who has the fewest, and of these to the one whose last turn is
    the longest ago, so that a newcomer is next. While others are active, a caller has at most its
    equal share of the places.
    """

    def __init__(
        self,
        places: int,
        max_waiting: int | None = None,
        active: RecentCallers | None = None,
        *,
        name: str,
    ) -> None:
        """Create free places.

        Args:
            places: requests at once.
            max_waiting: requests that may wait, shared among callers as everything else; None: no
                limit.
            active: callers among whom the places are shared; None: those that have asked for one.
            name: what waits, for messages.
        """
        self._places, self._active, self._served = (
            places,
            active or RecentCallers(),
            RecentCallers(),
        )
        self._name = name
        self._room = None if max_waiting is None else Shares(max_waiting, f"{name} that wait")
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._taken: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """Have a place, after waiting for the caller's turn.

        Raises:
            Overloaded: too many requests wait.
        """
        await self._enter(caller)
        try:
            yield
        finally:
            self._leave(caller)

    def check(self, caller: str) -> None:
        """Check that another request of a caller may wait.

        Raises:
            Overloaded: too many requests wait.
        """
        if self._room:
            self._room.check(caller)

    async def _enter(self, caller: str) -> None:
        self._active.note(caller)
        if self._may_enter(caller):
            self._take(caller)
            return
        turn = asyncio.get_running_loop().create_future()
        room = self._room and self._room.take(caller, 1, lambda: _refuse(turn, self._name))
        waiting = self._waiting.setdefault(caller, deque())
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            # It has the place and is cancelled now.
            if turn.done() and not turn.cancelled() and not turn.exception():
                self._leave(caller)
            raise
        finally:
            if room:
                room.close()
            with contextlib.suppress(ValueError):
                waiting.remove(turn)
            if not waiting and self._waiting.get(caller) is waiting:
                del self._waiting[caller]

    def _take(self, caller: str) -> None:
        self._taken[caller] = self._taken.get(caller, 0) + 1
        self._served.note(caller)

    def _leave(self, caller: str) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
        while turn := self._next_turn():
            turn.set_result(None)

    def _next_turn(self) -> asyncio.Future[None] | None:
        """Take a place for the caller who is next, and return its turn.

        None if there is no place for anybody.
        """
        for caller in sorted(
            self._waiting, key=lambda name: (self._taken.get(name, 0), self._served.last(name))
        ):
            turn = self._longest_waiting(caller) if self._may_enter(caller) else None
            if turn:
                self._take(caller)
                return turn
        return None

    def _longest_waiting(self, caller: str) -> asyncio.Future[None] | None:
        """Return the longest-waiting request of a caller that still waits."""
        turns = self._waiting[caller]
        while turns:
            turn = turns.popleft()
            if not turn.done():
                return turn
        return None

    def _may_enter(self, caller: str) -> bool:
        if sum(self._taken.values()) >= self._places:
            return False
        taken = self._taken.get(caller, 0)
        callers = {caller, *self._taken, *self._waiting, *self._active.names()}
        return not taken or taken + 1 <= self._places // len(callers)


def _refuse(turn: asyncio.Future[None], name: str) -> None:
    if not turn.done():
        turn.set_exception(Overloaded(f"other callers needed the places of {name}; retry later"))
