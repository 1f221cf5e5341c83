"""What a client is told when it is made, checked."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any

import httpx

KEY_VARIABLE = "MOBILE_SAM_API_KEY"
MAX_CONNECTIONS = 16
"""Requests of a client that are under way at once; more wait for their turn. The service gains nothing by more: it
would refuse what goes beyond its own limit, and have it sent again."""
LEAST_WRITE_TIMEOUT = 60.0
"""Seconds in which 64 KiB of a request must have left: `timeout` is for answers, and must not end a slow upload."""


def http_settings(url: str, api_key: str | None, timeout: float) -> dict[str, Any]:
    """The arguments for an httpx client.

    Args:
        url: of the service.
        api_key: None: what the environment says; empty: none.
        timeout: seconds for an answer to begin.

    Raises:
        ValueError: one of them cannot be.
    """
    if not (isinstance(timeout, numbers.Real) and 0 < timeout < math.inf):
        raise ValueError(f"timeout: expected seconds, more than 0 and finite, got {timeout!r}")
    key = _key(api_key)
    return {
        "base_url": _checked_url(url),
        # httpx keeps the value of this header out of what it prints.
        "headers": {"Authorization": f"Bearer {key}"} if key else {},
        # No limit for the wait for a connection: it is this client's own requests that stand before.
        "timeout": httpx.Timeout(timeout, write=max(timeout, LEAST_WRITE_TIMEOUT), pool=None),
        "limits": httpx.Limits(max_connections=MAX_CONNECTIONS),
    }


def checked_retries(retries: int) -> int:
    """The number of retries.

    Raises:
        ValueError: less than 0, or no whole number.
    """
    if not isinstance(retries, numbers.Integral) or retries < 0:
        raise ValueError(f"retries: expected a whole number, 0 or more, got {retries!r}")
    return retries


def checked_version(version: int | None) -> int | None:
    """The version of the model.

    Raises:
        ValueError: less than 1, or no whole number.
    """
    if version is not None and (not isinstance(version, numbers.Integral) or version < 1):
        raise ValueError(f"model_version: expected a whole number of at least 1, or None, got {version!r}")
    return version


def _checked_url(url: str) -> str:
    expected = "url: expected an address such as http://127.0.0.1:3000"
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise ValueError(f"{expected}, got what cannot be read: {error}") from None
    if parsed.userinfo:
        raise ValueError(f"{expected}, got one with a user's name or password in it; a key goes into api_key")
    if parsed.scheme not in {"http", "https"} or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(f"{expected}, got {url!r}")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise ValueError(f"url: expected a port of 1 to 65535, got {parsed.port}")
    return str(parsed).rstrip("/")


def _key(api_key: str | None) -> str:
    """The API key; empty for none. White space around it, such as the line end of a file, is left out."""
    key = (os.environ.get(KEY_VARIABLE, "") if api_key is None else api_key).strip()
    if not (key.isascii() and key.isprintable()):
        # What came is not shown, here or in the words of a library that fails to send it.
        name = KEY_VARIABLE if api_key is None else "api_key"
        raise ValueError(f"{name}: expected printable ASCII")
    return key
