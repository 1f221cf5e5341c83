"""Asks a service for an object, as a caller would: `ask.py URL PICTURE X Y`. Ends with a message where no mask came."""

from __future__ import annotations

import sys
import time

import httpx

from mobile_sam_client import Client

READY_WITHIN = 180
"""Seconds; a cold start in a container takes some ten."""


def wait_until_ready(url: str) -> float:
    """Seconds until `/readyz` said 200.

    Raises:
        SystemExit: it did not, with what it said last.
    """
    began, last = time.monotonic(), "nothing"
    while time.monotonic() - began < READY_WITHIN:
        try:
            answer = httpx.get(f"{url}/readyz", timeout=5)
        except httpx.HTTPError as error:
            last = str(error)
        else:
            if answer.status_code == httpx.codes.OK:
                return time.monotonic() - began
            last = answer.text
        time.sleep(0.25)
    raise SystemExit(f"{url}/readyz was not ready after {READY_WITHIN} s: {last.strip()}")


def main(url: str, picture: str, x: int, y: int) -> None:
    """Wait, ask, and look at the mask."""
    waited = wait_until_ready(url)
    with Client(url) as service:
        found = service.segment(picture, pos_coords=[[x, y]])
    if found.mask.shape != (found.height, found.width) or not found.mask[y, x]:
        raise SystemExit(f"expected a mask of {found.width} x {found.height} with the clicked pixel in it, got {found}")
    print(f"ready after {waited:.1f} s; {found.area} pixels with the weights {found.weights.name}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
