"""Files from other servers: from origins that the operator lists, within limits of size, time and
number.

Callers choose the addresses that are fetched, so each is checked, and so is each redirect. The
connection goes to the address that was checked: the resolver of the connection does the check. So
no second look-up can give another answer.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from utils.errors import ImageNotFetched, mib
from utils.inference.ending import Ending
from utils.inference.shares import Holding, Shares
from utils.integrations.advice import SMALLER
from utils.observability.context import caller
from utils.observability.logs import quoted

FETCH_TIMEOUT_S = 20.0
"""Maximum time for one file, redirects included."""
CONNECT_TIMEOUT_S = 5.0
MAX_REDIRECTS = 3
MAX_FETCHES = 64
"""Maximum number of files that an API worker fetches at once; most of the time they wait for
their server."""
MAX_LARGE_FILES = 4
"""Number of files of the maximum size whose bytes fit into memory meanwhile."""
MAX_URL_CHARS = 8192
"""Maximum length of a URL: yarl keeps parsed ones."""
REDIRECTS = (301, 302, 303, 307, 308)
NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Headers = Callable[[URL], Mapping[str, str]]


class Fetcher(AbstractResolver):
    """Fetcher of files from allowed origins; also resolves names for its connections.

    Proxies of the environment are not used. Every response is taken as it is, without
    decompression.
    """

    def __init__(
        self,
        allowed: Collection[str],
        max_bytes: int,
        own: URL | None = None,
        resolver: AbstractResolver | None = None,
    ) -> None:
        """Store what is allowed.

        Args:
            allowed: origins, such as `https://images.example`, and networks, such as
                `10.20.0.0/16`. A name with a dot must have a public address, or one in such a
                network.
            max_bytes: maximum size of a file.
            own: URL of the operator's own server: its origin is allowed too, at any address.
            resolver: finds the addresses of a name; default: the system's.
        """
        self._origins = {URL(text).origin() for text in allowed if "://" in text} | (
            {own.origin()} if own else set()
        )
        self._own_host = own.host if own else None
        self._networks = [ipaddress.ip_network(text) for text in allowed if "://" not in text]
        self._max_bytes, self._resolver = max_bytes, resolver
        self._files = Shares(MAX_FETCHES, "files that are being fetched")
        self._bytes = Shares(MAX_LARGE_FILES * max_bytes, "files that are being fetched", mib)

    async def fetch(
        self, url: str, headers: Headers = lambda _: {}, method: str = "GET", json: Any = None
    ) -> bytes:
        """Return the body of a response.

        Args:
            url: `http` or `https` URL.
            headers: returns the headers for a URL, which may come from a redirect.
            method: HTTP method of the request.
            json: JSON body of the request.

        Raises:
            ImageNotFetched: the URL is not allowed, or the server fails, or exceeds a limit.
            Overloaded: too much is being fetched for other callers.
        """
        try:
            with (
                Ending() as ending,
                closing(self._files.take(caller(), 1, ending.lose)),
                closing(self._bytes.take(caller(), 0, ending.lose)) as held,
            ):
                return await asyncio.wait_for(
                    self._follow(url, headers, method, json, held), FETCH_TIMEOUT_S
                )
        except asyncio.TimeoutError:
            raise ImageNotFetched(
                f"{shown_url(url)} did not arrive within {FETCH_TIMEOUT_S:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            reason = (
                "the connection failed"
                if isinstance(error, aiohttp.ClientConnectionError)
                else "it is not valid"
            )
            raise ImageNotFetched(
                f"could not fetch {shown_url(url)}: {reason}; is its server running?"
            ) from None

    async def _follow(
        self, text: str, headers: Headers, method: str, json: Any, held: Holding
    ) -> bytes:
        url = parsed_url(text)
        connector = aiohttp.TCPConnector(resolver=self, use_dns_cache=False)
        timeout = aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        options: dict[str, Any] = {"auto_decompress": False, "cookie_jar": aiohttp.DummyCookieJar()}
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, **options
        ) as session:
            for _ in range(1 + MAX_REDIRECTS):
                self._check(url)
                sent = {"Accept-Encoding": "identity", **headers(url)}
                async with session.request(
                    method, url, headers=sent, json=json, allow_redirects=False
                ) as response:
                    if response.status not in REDIRECTS or method != "GET":
                        return await self._body(url, response, held)
                    url = url.join(parsed_url(response.headers.get("Location", "")))
        raise ImageNotFetched(f"{shown_url(text)} has more than {MAX_REDIRECTS} redirects")

    def _check(self, url: URL) -> None:
        """Check a URL's scheme and origin; the address of its name is checked when it is
        resolved.
        """
        if url.scheme not in ("http", "https") or not url.host:
            raise ImageNotFetched(f"expected an http or https URL, got {quoted(str(url), 80)}")
        if url.user is not None or url.password is not None:
            raise ImageNotFetched("expected a URL without a user name and password")
        origin = url.origin()
        if origin not in self._origins:
            raise ImageNotFetched(
                f"images of {quoted(str(origin), 200)} are not fetched: the operator of this"
                " service can allow it in MOBILE_SAM_IMAGE_ORIGINS"
            )
        try:
            address = ipaddress.ip_address(url.host)
        except ValueError:
            return
        if _never_allowed(address):
            raise ImageNotFetched(
                f"images of {quoted(str(origin), 200)} are not fetched: the address is reserved"
            )

    def allows(self, host: str, address: Address) -> bool:
        """Return whether an address of a listed name may be connected to."""
        address = _embedded(address)
        if _never_allowed(address):
            return False
        # Names without a dot (localhost, container names) may have private addresses.
        listed = host == self._own_host or "." not in host
        return listed or address.is_global or any(address in network for network in self._networks)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a name; raise `ImageNotFetched` if it has others only."""
        addresses = await (self._resolver or aiohttp.ThreadedResolver()).resolve(host, port, family)
        allowed = [
            address
            for address in addresses
            if self.allows(host, ipaddress.ip_address(address["host"].partition("%")[0]))
        ]
        if addresses and not allowed:
            raise ImageNotFetched(
                f"{quoted(host, 200)} has a private address: the operator of this service can allow"
                " its network in MOBILE_SAM_IMAGE_ORIGINS, such as 10.20.0.0/16"
            )
        return allowed

    async def close(self) -> None:
        """Do nothing: the fetcher outlives its connections."""

    async def _body(self, url: URL, response: aiohttp.ClientResponse, held: Holding) -> bytes:
        where = shown_url(str(url))
        if response.status >= 300:
            error = ImageNotFetched(f"{where} was answered with status {response.status}")
            error.answered = response.status
            raise error
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ImageNotFetched(f"{where} was sent compressed; expected an uncompressed image")
        body = bytearray()
        too_large = ImageNotFetched(f"{where} is larger than {self._max_bytes} bytes: {SMALLER}")
        if (response.content_length or 0) > self._max_bytes:
            raise too_large
        async for chunk in response.content.iter_any():
            held.grow(len(chunk))
            body += chunk
            if len(body) > self._max_bytes:
                raise too_large
        return bytes(body)


def shown_url(text: str) -> str:
    """Return a URL for a message: without the query, which can contain a signature."""
    return quoted(text.partition("?")[0], 200)


def parsed_url(text: str) -> URL:
    """Return a URL; raise `ImageNotFetched` if it is malformed or too long."""
    if len(text) > MAX_URL_CHARS:
        raise ImageNotFetched(
            f"expected a URL of at most {MAX_URL_CHARS} characters, got {len(text)}"
        )
    try:
        return URL(text)
    except ValueError:
        raise ImageNotFetched(f"expected a URL, got {quoted(text, 80)}") from None


def _never_allowed(address: Address) -> bool:
    """Return whether an address is for the link (such as a cloud's metadata server), a group, or
    nobody.
    """
    address = _embedded(address)
    reserved = address.is_reserved and not address.is_loopback
    return address.is_link_local or address.is_multicast or address.is_unspecified or reserved


def _embedded(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
