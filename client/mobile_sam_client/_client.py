"""The blocking and the asyncio client."""

from __future__ import annotations

import functools
import math
import numbers
import os
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from mobile_sam_client._calls import Calls
from mobile_sam_client._wire import run_blocking

P = ParamSpec("P")
T = TypeVar("T")

URL = "http://127.0.0.1:3000"
URL_VARIABLE = "MOBILE_SAM_URL"
KEY_VARIABLE = "MOBILE_SAM_API_KEY"
MAX_CONNECTIONS = 16
"""Concurrent requests per client; further ones wait. More would not help: the service rejects requests beyond its own
limit, and they would be retried."""
MIN_WRITE_TIMEOUT_S = 60.0
"""Minimum time to send each 64 KiB of a request: `timeout` is meant for answers and must not abort a slow upload."""


def _blocking(call: Callable[Concatenate[Calls, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Client, P], T]:
    """Return the blocking version of a call, with its parameters and docstring."""

    @functools.wraps(call)
    def method(self: Client, /, *arguments: P.args, **named: P.kwargs) -> T:
        return run_blocking(call(self._calls, *arguments, **named))

    method.__qualname__ = f"Client.{call.__name__}"
    return method


class Client:
    """Blocking client of a MobileSAM service. It is thread-safe.

    The first call on an image uploads it; later calls send only its id. The client uploads the image again if the
    service no longer has it. While the service is busy (429, 503) or unreachable, requests are retried after the time
    given by `Retry-After` (at most 30 s), or with exponential backoff from 0.2 s.

    Calls raise `MobileSamError`. Invalid arguments raise `ValueError`, `TypeError` or `OSError`, and nothing is sent.

    See `ImageInput` for the accepted images. Coordinates are pixels of the displayed image: EXIF orientation is applied
    to files, but not to PIL images and arrays.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        model_version: int | None = None,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | bool = True,
        proxy: str | httpx.Proxy | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """Create a client; nothing is sent yet.

        Args:
            url: URL of the service. None: the environment variable MOBILE_SAM_URL, or else http://127.0.0.1:3000.
            api_key: API key. None: the environment variable MOBILE_SAM_API_KEY; empty: no key.
            timeout: seconds to wait for a connection, for an answer to begin, and between its parts. It does not limit
                uploads; after a large upload the wait is up to 32 s longer.
            retries: maximum number of retries per request.
            model_version: version of the model for all calls, one of `Info.model_versions`. None: the newest.
            headers: further headers of all requests, such as those that a gateway asks for.
            verify: False not to verify the service's certificate, or a context that verifies it, such as
                `ssl.create_default_context(cafile="ca.pem")`.
            proxy: URL of a proxy. None: the environment variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.
            transport: httpx transport, for tests.

        Raises:
            ValueError: an argument is invalid.
        """
        settings = _http_settings(url, api_key, timeout, headers)
        self._http = httpx.Client(**settings, verify=verify, proxy=proxy, transport=transport)
        self._calls = Calls(self._http, retries, model_version)
        self.url = self._calls.url
        """URL of the service."""

    info = _blocking(Calls.info)
    embed = _blocking(Calls.embed)
    segment = _blocking(Calls.segment)
    segment_many = _blocking(Calls.segment_many)
    everything = _blocking(Calls.everything)

    def close(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.url!r})"


class AsyncClient(Calls):
    """Asyncio version of `Client`, with the same calls as coroutines. It belongs to one event loop.

    Blocking work, such as encoding a PNG, runs in threads.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        model_version: int | None = None,
        headers: Mapping[str, str] | None = None,
        verify: ssl.SSLContext | bool = True,
        proxy: str | httpx.Proxy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Create a client; nothing is sent yet. `Client` describes the arguments."""
        settings = _http_settings(url, api_key, timeout, headers)
        self._http = httpx.AsyncClient(**settings, verify=verify, proxy=proxy, transport=transport)
        super().__init__(self._http, retries, model_version)

    async def aclose(self) -> None:
        """Close the connections. The client cannot be used afterwards."""
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.url!r})"


def _http_settings(
    url: str | None, api_key: str | None, timeout: float, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    """Check these arguments of a client, and return those for a client of httpx."""
    if not (isinstance(timeout, numbers.Real) and 0 < timeout < math.inf):
        raise ValueError(f"timeout: expected a positive, finite number of seconds, got {timeout!r}")
    all_headers = httpx.Headers(headers)
    if key := _checked_key(api_key):
        all_headers["Authorization"] = f"Bearer {key}"  # httpx does not print the value of this header
    return {
        "base_url": checked_url(url),
        "headers": all_headers,
        # No limit on the wait for a free connection: they are in use by this client's own requests.
        "timeout": httpx.Timeout(timeout, write=max(timeout, MIN_WRITE_TIMEOUT_S), pool=None),
        "limits": httpx.Limits(max_connections=MAX_CONNECTIONS),
    }


def checked_url(given: str | None) -> str:
    """Return the URL of the service, from the environment if None, without a trailing slash."""
    url = (os.environ.get(URL_VARIABLE) or URL) if given is None else given
    name = URL_VARIABLE if given is None else "url"
    expected = f"{name}: expected a URL such as {URL}"
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ValueError(f"{expected}, but parsing failed: {error}") from None
    if parsed.userinfo:
        raise ValueError(f"{expected}, got one with a user name or password; pass API keys as api_key")
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(f"{expected}, got {url!r}")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise ValueError(f"{name}: expected a port from 1 to 65535, got {parsed.port}")
    return str(parsed).rstrip("/")


def _checked_key(api_key: str | None) -> str:
    """Return the API key, stripped of surrounding whitespace; empty for none."""
    key = (os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key).strip()
    if not (key.isascii() and key.isprintable()):
        # Raised here, because a library failing to send the key would quote it.
        name = KEY_VARIABLE if api_key is None else "api_key"
        raise ValueError(f"{name}: expected printable ASCII")
    return key
