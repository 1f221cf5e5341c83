"""Is a service ready? It says so itself at `/readyz`."""

from __future__ import annotations

from dataclasses import dataclass

import httpx


@dataclass(frozen=True)
class Readiness:
    """What a service says of itself."""

    ready: bool
    words: str
    """Its own, or why there are none."""


def readiness(url: str, timeout: float) -> Readiness:
    """Ask a service whether it is ready.

    Args:
        url: where it is.
        timeout: seconds to wait for an answer.
    """
    try:
        answer = httpx.get(f"{url.rstrip('/')}/readyz", timeout=timeout)
    except httpx.HTTPError as error:
        return Readiness(False, str(error) or type(error).__name__)
    return Readiness(answer.status_code == httpx.codes.OK, " ".join(answer.text.split())[:200])
