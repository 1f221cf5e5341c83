"""Segment an image, using only `requests` and `requests_toolbelt`.

    python client/request.py photo.jpg --point 320,240
    python client/request.py photo.jpg --box 100,80,400,360 --negative 150,300 --picture cutout
    python client/request.py photo.jpg --everything records.json

The first two write `mask.png` (white on black) and `segmented_image.png`, the third writes all
objects.
"""

import argparse
import base64
import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import requests
from requests_toolbelt.multipart.decoder import MultipartDecoder
from urllib3 import Retry

# A busy service answers 429 or 503: the request is repeated after the time in its `Retry-After`.
RETRIES = Retry(5, connect=0, read=0, allowed_methods=None, raise_on_status=False)


def send(url: str, image: bytes, **fields: Any) -> requests.Response:
    """Send a request about an image file and return the answer.

    An error of the service is raised with its reason.
    """
    key = os.environ.get("MOBILE_SAM_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        # Raised here, because a library failing to send the key would quote it.
        raise requests.RequestException("MOBILE_SAM_API_KEY: expected printable ASCII")
    session = requests.Session()
    session.mount(url, requests.adapters.HTTPAdapter(max_retries=RETRIES))
    # For load balancers that route by image.
    headers = {"X-Image-Id": hashlib.sha256(image).hexdigest()}
    if key:
        # `Authorization` would be overridden by `~/.netrc`.
        headers["X-API-Key"] = key
    fields["input_image"] = base64.b64encode(image).decode()
    answer = session.post(url, json=fields, headers=headers, timeout=60, allow_redirects=False)
    if answer.status_code != requests.codes.ok:
        is_problem = answer.headers.get("Content-Type", "") == "application/problem+json"
        reason = answer.json()["detail"] if is_problem else answer.text[:200]
        request_id = answer.headers.get("X-Request-ID")
        text = f"{answer.status_code}: {reason} (request {request_id})"
        raise requests.RequestException(" ".join(text.split()))
    return answer


def numbers(text: str) -> list[float]:
    """Parse comma-separated numbers."""
    return [float(number) for number in text.split(",")]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Segment an image.", epilog="MOBILE_SAM_API_KEY: the API key."
    )
    parser.add_argument("image", type=Path, help="PNG, JPEG or WebP file")
    parser.add_argument(
        "--point",
        type=numbers,
        action="append",
        default=[],
        metavar="X,Y",
        help="point on the object",
    )
    parser.add_argument(
        "--negative",
        type=numbers,
        action="append",
        default=[],
        metavar="X,Y",
        help="point outside it",
    )
    parser.add_argument("--box", type=numbers, metavar="X0,Y0,X1,Y1", help="box around the object")
    parser.add_argument(
        "--picture", choices=["overlay", "cutout"], default="overlay", help="default: %(default)s"
    )
    parser.add_argument("--mask-out", type=Path, default="mask.png", help="default: %(default)s")
    parser.add_argument(
        "--picture-out", type=Path, default="segmented_image.png", help="default: %(default)s"
    )
    parser.add_argument(
        "--everything", type=Path, metavar="FILE", help="segment everything, write JSON"
    )
    parser.add_argument(
        "--points-per-side", type=int, default=32, help="grid of --everything; default: %(default)s"
    )
    parser.add_argument(
        "--url", default="http://127.0.0.1:3000", help="URL of the service; default: %(default)s"
    )
    options = parser.parse_args(arguments)
    try:
        image = options.image.read_bytes()
        if options.everything:
            records = send(
                f"{options.url}/everything", image, points_per_side=options.points_per_side
            )
            options.everything.write_bytes(records.content)
            return
        fields = {
            "pos_coords": options.point,
            "neg_coords": options.negative,
            "box": options.box,
            "mask_format": "png",
        }
        answer = send(f"{options.url}/mobile_sam", image, segmented_image=options.picture, **fields)
        mask, picture, result = MultipartDecoder.from_response(answer).parts
        options.mask_out.write_bytes(mask.content)
        options.picture_out.write_bytes(picture.content)
        print(f"{result.text}\nwrote {options.mask_out} and {options.picture_out}")
    except requests.ConnectionError:
        sys.exit(f"error: cannot connect to {options.url}; start it with `make serve`")
    except OSError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
