"""Access control: API keys and a rate limit, both optional."""

import ipaddress
from dataclasses import dataclass

from starlette.types import Scope

from utils.edge.keys import ApiKeys
from utils.edge.rate import RateLimit

IPV6_NETWORK = 64
"""Prefix length of the network that one household or host usually gets."""


@dataclass(frozen=True)
class Guard:
    """Checks the API key and the rate of requests."""

    keys: ApiKeys | None
    """Keys of which each request needs one."""
    rate: RateLimit | None
    """Limit for each key name, or without keys for each address."""

    def authenticate(self, scope: Scope) -> str:
        """Return the name of the request's API key; empty where no key is needed.

        Raises:
            Unauthorized: the request has no known key.
        """
        return "" if self.keys is None else self.keys.name_of(scope["headers"])

    async def check_rate(self, scope: Scope, name: str) -> None:
        """Count a request of a key name or, if that is empty, of an address.

        Raises:
            TooManyRequests: the rate limit is exceeded.
        """
        if self.rate is not None:
            await self.rate.check(f"key:{name}" if name else f"address:{address(scope)}")


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
