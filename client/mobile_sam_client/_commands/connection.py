"""From the options `--url` and `--local` to a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

from mobile_sam_client import Client, Problem
from mobile_sam_client._commands.failures import CommandError, cause
from mobile_sam_client._commands.local_service import local_service
from mobile_sam_client._commands.output import log_told

Kind = TypeVar("Kind")

TIMEOUT = 10
"""Seconds that a service may take to say what it is."""
IMPATIENT = partial(Client, timeout=TIMEOUT, retries=0)
"""A client that finds out whether there is a service: no use in trying for long."""


@contextmanager
def address(url: str, local: bool) -> Iterator[str]:
    """Where the service is: at `url`, or one that is started for the time of the block."""
    if local:
        with local_service() as started:
            yield started
    else:
        yield url


@contextmanager
def connected(url: str, local: bool) -> Iterator[Client]:
    """A client of the service, for a command that somebody waits for.

    Where nothing answers that is told at once, and while a busy service is waited for that is told, too.
    """
    with address(url, local) as found:
        with client_of(IMPATIENT, found) as client, suppress(Problem):  # one that refuses is there
            client.info()
        with client_of(Client, found) as client, log_told():
            yield client


def client_of(kind: Callable[[str], Kind], url: str) -> Kind:
    """A client of a kind.

    Raises:
        CommandError: the URL, or the key of the environment, cannot be one.
    """
    try:
        return kind(url)
    except ValueError as error:
        raise CommandError(cause(error)) from None
