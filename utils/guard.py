"""Who may ask, and how often: API keys and a rate limit, both optional."""

from __future__ import annotations

from starlette.types import Scope

from utils.keys import ApiKeys
from utils.rate import RateLimit


class Guard:
    """Stands before everything that costs work."""

    def __init__(self, keys: ApiKeys | None, rate: RateLimit | None) -> None:
        """Make a guard.

        Args:
            keys: of which callers must present one; None: everybody may ask.
            rate: how often a key, or without keys an address, may ask; None: as often as they like.
        """
        self._keys, self._rate = keys, rate

    def name(self, scope: Scope) -> str:
        """The name of the caller's API key; empty where none is needed.

        Raises:
            Unauthorized: there is none, or it is not known.
        """
        return "" if self._keys is None else self._keys.name_of(scope["headers"])

    async def check_rate(self, scope: Scope, name: str) -> None:
        """Count one request of a caller.

        Raises:
            TooManyRequests: they have had as many as they may.
        """
        if self._rate is not None:
            await self._rate.check(f"key:{name}" if name else f"address:{address(scope)}")


def address(scope: Scope) -> str:
    """The caller's address; behind a trusted proxy (`FORWARDED_ALLOW_IPS` of uvicorn) the one that it names."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
