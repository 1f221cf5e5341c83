"""Readiness of a service, from `/readyz`."""

from __future__ import annotations

from dataclasses import dataclass

import httpx


@dataclass(frozen=True)
class Readiness:
    """Readiness of a service."""

    ready: bool
    message: str
    """The service's answer, or the connection error."""


def check_readiness(url: str, timeout: float) -> Readiness:
    """Ask a service whether it is ready.

    Args:
        url: URL of the service.
        timeout: seconds to wait for an answer.
    """
    try:
        response = httpx.get(f"{url.rstrip('/')}/readyz", timeout=timeout)
    except httpx.HTTPError as error:
        return Readiness(False, str(error) or type(error).__name__)
    return Readiness(response.status_code == httpx.codes.OK, " ".join(response.text.split())[:200])
