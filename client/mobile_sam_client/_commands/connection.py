"""Clients for the options `--url` and `--local`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from mobile_sam_client import Client, Problem
from mobile_sam_client._commands.failures import CommandError, describe
from mobile_sam_client._commands.local_service import local_service
from mobile_sam_client._commands.output import log_to_stderr

ClientType = TypeVar("ClientType")

PROBE_TIMEOUT_S = 10
probing_client = partial(Client, timeout=PROBE_TIMEOUT_S, retries=0)
"""Client without retries, to find out quickly whether the service is reachable."""


@contextmanager
def service_url(url: str, local: bool) -> Iterator[str]:
    """Yield the URL of the service: `url`, or that of a local service that runs for the duration of the block."""
    if local:
        with local_service() as local_url:
            yield local_url
    else:
        yield url


@contextmanager
def connected_client(url: str, local: bool) -> Iterator[Client]:
    """Yield a client for an interactive command.

    It fails at once if the service is unreachable, and prints retries to standard error.
    """
    with service_url(url, local) as address:
        with make_client(probing_client, address) as client, suppress(Problem):  # a Problem shows that it is reachable
            client.info()
        with make_client(Client, address) as client, log_to_stderr():
            yield client


def make_client(client_type: Callable[[str], ClientType], url: str) -> ClientType:
    """Create a client.

    Raises:
        CommandError: the URL, or the key from the environment, is invalid.
    """
    try:
        return client_type(url)
    except ValueError as error:
        raise CommandError(describe(error)) from None
