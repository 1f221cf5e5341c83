"""Who may ask, and how often: API keys and a rate limit, both optional."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

from utils.edge.keys import ApiKeys
from utils.edge.rate import RateLimit

IPV6_NETWORK = 64
"""Bits of a network as one household or host gets it."""


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

    async def close(self) -> None:
        """Let go of Redis, if that is where requests are counted."""
        if self._rate is not None:
            await self._rate.close()


def address(scope: Scope) -> str:
    """The caller's address; behind a trusted proxy (`FORWARDED_ALLOW_IPS` of uvicorn) the one that it names.

    Of IPv6 the network, as `network` has it.
    """
    client = scope.get("client")
    return network(str(client[0])) if client else "unknown"


def network(ip: str) -> str:
    """An IPv4 address as it is, the /64 network of an IPv6 one: who has one address has 2^64. Other texts stay."""
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return ip if parsed.version == 4 else str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))
