"""Request an object from a service: `ask.py URL PICTURE X Y`. Exits with a message if it gets no valid mask."""

import sys
import time

from mobile_sam_client import Client, MobileSamError

RETRIES = 15
"""About three minutes; a cold start in a container takes about 10 s."""


def main(url: str, picture: str, x: int, y: int) -> None:
    """Wait for the service, request an object and check its mask."""
    began = time.monotonic()
    try:
        with Client(url, retries=RETRIES) as service:
            found = service.segment(picture, pos_coords=[[x, y]])
    except MobileSamError as error:
        raise SystemExit(str(error)) from None
    if found.mask.shape != (found.height, found.width) or not found.mask[y, x]:
        raise SystemExit(f"expected a {found.width} x {found.height} mask that contains the click, got {found}")
    print(f"mask of {found.area} pixels after {time.monotonic() - began:.1f} s, weights {found.weights.name}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
