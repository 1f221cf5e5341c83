"""Settings of a client: address, key and limits of the service, checked before anything is sent."""

import math
import numbers
import os

import httpx

DEFAULT_URL = "http://127.0.0.1:3000"
"""URL of a service on this machine."""
URL_VARIABLE = "MOBILE_SAM_URL"
KEY_VARIABLE = "MOBILE_SAM_API_KEY"
MAX_CONNECTIONS = 16
"""Concurrent requests per client; further ones wait. More would not help: the service rejects
requests beyond its own limit, and they would be retried."""


def checked_url(given: str | None) -> str:
    """Return the URL of the service with a scheme and without a trailing slash.

    Args:
        given: URL, or `host:port`; None for the one in the environment.

    Raises:
        ValueError: it is no URL of a service.
    """
    url = given
    name = "url"
    if given is None:
        url = os.environ.get(URL_VARIABLE) or DEFAULT_URL
        name = URL_VARIABLE
    if isinstance(url, str) and "://" not in url:
        url = f"http://{url}"
    expected = f"{name}: expected a URL such as {DEFAULT_URL}"
    try:
        parsed = httpx.URL(url)  # type: ignore[arg-type] # a caller may have passed anything
    except (httpx.InvalidURL, TypeError) as error:
        raise ValueError(f"{expected}, but parsing failed: {error}") from None
    if parsed.userinfo:
        hint = "pass API keys as api_key"
        raise ValueError(f"{expected}, got one with a user name or password; {hint}")
    is_http = parsed.scheme in {"http", "https"}
    if not is_http or not parsed.host or parsed.query or parsed.fragment:
        raise ValueError(f"{expected}, got {url!r}")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise ValueError(f"{name}: expected a port from 1 to 65535, got {parsed.port}")
    return str(parsed).rstrip("/")


def checked_key(given: str | None) -> str:
    """Return the API key, from the environment if None; empty for no key.

    Raises:
        ValueError: it cannot be sent in a header.
    """
    key = given
    name = "api_key"
    if key is None:
        key = os.environ.get(KEY_VARIABLE, "")
        name = KEY_VARIABLE
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        # Raised here, because a library failing to send the key would quote it.
        raise ValueError(f"{name}: expected printable ASCII")
    return key


def check_timeout(timeout: float) -> None:
    """Raise `ValueError` unless the timeout is a positive, finite number."""
    if not (isinstance(timeout, numbers.Real) and 0 < timeout < math.inf):
        expected = "a positive, finite number of seconds"
        raise ValueError(f"timeout: expected {expected}, got {timeout!r}")


def check_integer(name: str, value: int, minimum: int, alternative: str = "") -> None:
    """Raise `ValueError` unless a setting is an integer of at least a minimum."""
    if not isinstance(value, numbers.Integral) or value < minimum:
        expected = f"an integer of at least {minimum}{alternative}"
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
