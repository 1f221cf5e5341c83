"""Protection from foreign web pages: checks of the headers Origin and Host.

A browser lets any page send simple requests to this service, and by a DNS name that is rebound to
this machine's address the page even reads the answers. The browser sends the page's origin and the
name in both cases.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from utils.errors import ForeignPage
from utils.observability.logs import quoted

PRIVATE_HOSTS = ("*.localhost", "*.local", "*.internal", "*.svc")
"""Names that no stranger's DNS can have; `*.local` includes Kubernetes' `*.svc.cluster.local`."""
HOST = re.compile(r"(\[[^]]*\]|[^:]*)(?::([0-9]*))?")
"""Host and port of a `Host` header."""
EXPECTED_HOST = (
    "without API keys expected as Host an IP address, a name without a dot, this machine's name, "
    f"{', '.join(PRIVATE_HOSTS)} or one in MOBILE_SAM_HOSTS"
)
DEFAULT_PORTS = {"http": "80", "https": "443"}


class Origins:
    """Origins and hosts that may send work or change anything."""

    def __init__(self, origins: Collection[str] = (), hosts: Collection[str] | None = ()) -> None:
        """Allow requests to private hosts and from their own pages.

        Args:
            origins: other allowed origins; `*` allows all.
            hosts: other allowed hosts, as patterns of `fnmatch`; None allows all.
        """
        self._origins, self._hosts = origins, hosts
        self._own_names = {socket.gethostname().lower()}

    def look_up_own_name(self) -> None:
        """Also allow this machine's name with its domain; the look-up may take seconds."""
        self._own_names.add(socket.getfqdn().lower())

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check the ASGI headers of a request.

        Raises:
            ForeignPage: another origin's page may have sent the request.
        """
        texts = [
            (name, value.decode("latin-1"))
            for name, value in headers
            if name in (b"origin", b"host")
        ]
        host = next((value for name, value in texts if name == b"host"), "").lower()
        for origin in (value for name, value in texts if name == b"origin"):
            if (
                "*" not in self._origins
                and origin not in self._origins
                and not _is_own(origin, host)
            ):
                raise ForeignPage.from_origin(origin, host)
        if self._hosts is not None and not self._is_allowed(host):
            raise ForeignPage(EXPECTED_HOST, got=quoted(host))

    def _is_allowed(self, host: str) -> bool:
        parts = HOST.fullmatch(host)
        if parts is None:
            return False
        name = parts[1].removesuffix(".")
        # Brackets without a dot hold an IPv6 address, or no name at all.
        if "." not in name or name in self._own_names:
            return True
        patterns = (*PRIVATE_HOSTS, *(self._hosts or ()))
        return _is_address(name.strip("[]")) or any(
            fnmatchcase(name, pattern.lower()) for pattern in patterns
        )


def _is_own(origin: str, host: str) -> bool:
    """Return whether an origin names the host, with any scheme: a proxy may terminate TLS."""
    scheme, _, rest = origin.lower().partition("://")
    default = f":{DEFAULT_PORTS.get(scheme)}"
    return rest != "" and rest.removesuffix(default) == host.removesuffix(default)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
