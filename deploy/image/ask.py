"""Request an object from a service: `ask.py URL PICTURE X Y`. Exits with a message if it gets no valid mask."""

from __future__ import annotations

import sys
import time

import httpx

from mobile_sam_client import Client

READY_TIMEOUT_S = 180
"""A cold start in a container takes about 10 s."""


def wait_until_ready(url: str) -> float:
    """Wait until `/readyz` answers 200; return the seconds waited.

    Raises:
        SystemExit: the service was not ready in time; the message has its last response.
    """
    began, last = time.monotonic(), "no response"
    while time.monotonic() - began < READY_TIMEOUT_S:
        try:
            answer = httpx.get(f"{url}/readyz", timeout=5)
        except httpx.HTTPError as error:
            last = str(error)
        else:
            if answer.status_code == httpx.codes.OK:
                return time.monotonic() - began
            last = answer.text
        time.sleep(0.25)
    raise SystemExit(f"{url}/readyz was not ready after {READY_TIMEOUT_S} s: {last.strip()}")


def main(url: str, picture: str, x: int, y: int) -> None:
    """Wait for the service, request an object and check its mask."""
    waited = wait_until_ready(url)
    with Client(url) as service:
        found = service.segment(picture, pos_coords=[[x, y]])
    if found.mask.shape != (found.height, found.width) or not found.mask[y, x]:
        raise SystemExit(f"expected a {found.width} x {found.height} mask that contains the click, got {found}")
    print(f"ready after {waited:.1f} s; mask of {found.area} pixels, weights {found.weights.name}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
