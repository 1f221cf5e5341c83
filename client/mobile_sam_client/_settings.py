"""Validation of the arguments of a client."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from typing import Any

import httpx

URL = "http://127.0.0.1:3000"
URL_VARIABLE = "MOBILE_SAM_URL"
KEY_VARIABLE = "MOBILE_SAM_API_KEY"
MAX_CONNECTIONS = 16
"""Concurrent requests per client; further ones wait. More would not help: the service rejects requests beyond its own
limit, and they would be retried."""
MIN_WRITE_TIMEOUT_S = 60.0
"""Minimum time to send each 64 KiB of a request: `timeout` is meant for answers and must not abort a slow upload."""


def http_settings(
    url: str | None, api_key: str | None, timeout: float, headers: Mapping[str, str] | None
) -> dict[str, Any]:
    """Return the arguments for an httpx client.

    Args:
        url: URL of the service. None: from the environment.
        api_key: API key. None: from the environment; empty: no key.
        timeout: seconds to wait for an answer.
        headers: further headers of all requests.

    Raises:
        ValueError: an argument is invalid.
    """
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


def check_integer(name: str, value: int, minimum: int, alternative: str = "") -> None:
    """Raise `ValueError` unless the value is an integer of at least `minimum`."""
    if not isinstance(value, numbers.Integral) or value < minimum:
        raise ValueError(f"{name}: expected an integer of at least {minimum}{alternative}, got {value!r}")


def checked_url(given: str | None) -> str:
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
