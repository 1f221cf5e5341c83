"""Access control: API keys and a rate limit, both optional."""

from __future__ import annotations

import ipaddress

from starlette.types import Scope

from utils.edge.keys import ApiKeys
from utils.edge.rate import RateLimit

IPV6_NETWORK = 64
"""Prefix length of the network that one household or host usually gets."""


class Guard:
    """Checks the API key and the rate of requests."""

    def __init__(self, keys: ApiKeys | None, rate: RateLimit | None) -> None:
        """Store the keys and the limit.

        Args:
            keys: keys of which each request needs one; None: no key is needed.
            rate: limit for each key name, or without keys for each address; None: no limit.
        """
        self._keys, self._rate = keys, rate

    def authenticate(self, scope: Scope) -> str:
        """Return the name of the request's API key; empty where no key is needed.

        Raises:
            Unauthorized: the request has no known key.
        """
        return "" if self._keys is None else self._keys.name_of(scope["headers"])

    async def check_rate(self, scope: Scope, name: str) -> None:
        """Count a request of a key name or, if that is empty, of an address.

        Raises:
            TooManyRequests: the rate limit is exceeded.
        """
        if self._rate is not None:
            await self._rate.check(f"key:{name}" if name else f"address:{address(scope)}")

    async def close(self) -> None:
        """Close the connections to Redis, if any."""
        if self._rate is not None:
            await self._rate.close()


def address(scope: Scope) -> str:
    """Return the caller's address (IPv4) or network (IPv6).

    Behind a trusted proxy (uvicorn's `FORWARDED_ALLOW_IPS`) it is the address that the proxy forwards.
    """
    client = scope.get("client")
    return network(str(client[0])) if client else "unknown"


def network(ip: str) -> str:
    """Return the /64 network of an IPv6 address, whose owner has 2^64 addresses; return other texts unchanged."""
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return ip if parsed.version == 4 else str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))
