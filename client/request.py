"""Segment one object of an image, with nothing but `requests` and `requests_toolbelt`.

    python client/request.py photo.jpg --point 320,240
    python client/request.py photo.jpg --box 100,80,400,360 --negative 150,300 --picture cutout

writes `mask.png` (white where the object is) and `segmented_image.png`, and prints what the service says of the mask.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from email.message import Message
from pathlib import Path
from typing import Any

import requests
from requests_toolbelt.multipart.decoder import (
    ImproperBodyPartContentException,
    MultipartDecoder,
    NonMultipartContentTypeException,
)

URL = "http://127.0.0.1:3000"


def segment(url: str, image: Path, timeout: float = 60, **prompt: Any) -> dict[str, bytes]:
    """Ask the service for one object.

    Args:
        url: where the service listens.
        image: a PNG, JPEG or WebP file.
        timeout: seconds to wait for the answer.
        prompt: further fields of the request, such as `pos_coords=[[320, 240]]`.

    Returns:
        The parts of the answer by name: `mask`, `segmented_image`, `result`.

    Raises:
        requests.HTTPError: the service refused; the message holds what it said.
    """
    request = {"input_image": base64.b64encode(image.read_bytes()).decode(), **prompt}
    response = requests.post(f"{url}/mobile_sam", json=request, timeout=timeout)
    if not response.ok:
        problem = response.headers.get("Content-Type", "").startswith("application/problem+json")
        reason = response.json()["detail"] if problem else (response.text.splitlines() or [response.reason])[0][:200]
        raise requests.HTTPError(f"{response.status_code}: {reason}", response=response)
    try:
        return {_name(part.headers): part.content for part in MultipartDecoder.from_response(response).parts}
    except (NonMultipartContentTypeException, ImproperBodyPartContentException, KeyError) as error:
        raise requests.RequestException(f"{url} is no such service: its answer is not multipart") from error


def _name(headers: Any) -> str:
    """The part's name out of its Content-Disposition header."""
    message = Message()
    message["Content-Disposition"] = headers[b"Content-Disposition"].decode()
    return str(message.get_param("name", header="Content-Disposition"))


def _numbers(count: int) -> Any:
    def numbers(text: str) -> list[float]:
        values = [float(value) for value in text.split(",")]
        if len(values) != count:
            raise argparse.ArgumentTypeError(f"expected {count} numbers with commas between, got {text!r}")
        return values

    return numbers


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Segment one object of an image.")
    parser.add_argument("image", type=Path, help="a PNG, JPEG or WebP file")
    parser.add_argument(
        "--point", type=_numbers(2), metavar="X,Y", action="append", default=[], help="a click on the object"
    )
    parser.add_argument(
        "--negative", type=_numbers(2), metavar="X,Y", action="append", default=[], help="a click beside the object"
    )
    parser.add_argument("--box", type=_numbers(4), metavar="X0,Y0,X1,Y1", help="a box around the object")
    parser.add_argument("--picture", choices=["overlay", "cutout"], default="overlay", help="default: %(default)s")
    parser.add_argument("--mask-out", type=Path, default=Path("mask.png"), help="default: %(default)s")
    parser.add_argument("--picture-out", type=Path, default=Path("segmented_image.png"), help="default: %(default)s")
    parser.add_argument("--url", default=URL, help="default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        parts = segment(
            options.url,
            options.image,
            pos_coords=options.point,
            neg_coords=options.negative,
            box=options.box,
            mask_format="png",
            segmented_image=options.picture,
        )
        options.mask_out.write_bytes(parts["mask"])
        options.picture_out.write_bytes(parts["segmented_image"])
    except requests.ConnectionError:
        print(f"error: nothing answers at {options.url}; start it with `make serve`", file=sys.stderr)
        return 1
    except (requests.RequestException, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    result = json.loads(parts["result"])
    mask, weights = result["masks"][0], result["weights"]
    print(f"{options.image}: {result['width']} x {result['height']} pixels, weights: {weights['name']}")
    print(f"mask: score {mask['score']}, {mask['area']} pixels in box {mask['box']}")
    print(f"wrote {options.mask_out} and {options.picture_out}")
    if not weights["trained"]:
        print(f"note: {weights['note']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
