"""Clients of the service that a command asks."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import httpx
import typer

from mobile_sam_client import AsyncClient, Client
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._errors import describe_error
from mobile_sam_client._settings import checked_url

T = TypeVar("T")

PROBE_TIMEOUT_S = 10


def service_url(url: str | None) -> str:
    """Return the URL of the service by the option `--url`, or by the environment."""
    try:
        return checked_url(url)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def make_client(client_type: Callable[[str], T], url: str) -> T:
    """Create a client; an invalid API key in the environment is a `CommandError`."""
    try:
        return client_type(url)
    except ValueError as error:
        raise CommandError(describe_error(error)) from None


def blocking_client(url: str, max_side: int | None) -> Client:
    """Create the client of a command that works on one image after the other."""
    return make_client(partial(Client, max_side=max_side), url)


def async_client(url: str, max_side: int | None) -> AsyncClient:
    """Create the client of a command that works on several images at once."""
    return make_client(partial(AsyncClient, max_side=max_side), url)


def probing_client(url: str) -> Client:
    """Create a client without retries, to find out quickly whether the service is reachable."""
    return make_client(partial(Client, timeout=PROBE_TIMEOUT_S, retries=0), url)


def why_not_ready(url: str, timeout: float) -> str | None:
    """Return the answer of a service's `/readyz`, or the connection error; None if it is ready."""
    try:
        response = httpx.get(f"{url.rstrip('/')}/readyz", timeout=timeout)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    if response.status_code == httpx.codes.OK:
        return None
    return " ".join(response.text.split())[:200]
