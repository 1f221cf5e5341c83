"""From the options `--url` and `--local` to a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from mobile_sam_client import Client
from mobile_sam_client._commands.failures import CommandError, cause
from mobile_sam_client._commands.local_service import local_service

Kind = TypeVar("Kind")


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
    """A client of the service."""
    with address(url, local) as found, client_of(Client, found) as client:
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
