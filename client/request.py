"""Segment an image, with nothing but `requests` and `requests_toolbelt`.

    python client/request.py photo.jpg --point 320,240
    python client/request.py photo.jpg --box 100,80,400,360 --negative 150,300 --picture cutout
    python client/request.py photo.jpg --everything records.json

The first two write `mask.png` (white where the object is) and `segmented_image.png`, and print what the service says of
the mask; the third writes all objects it finds. Where the service wants an API key it is taken from the environment:
`MOBILE_SAM_API_KEY`.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
from collections.abc import Callable
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
KEY_VARIABLE = "MOBILE_SAM_API_KEY"
"""Not an option of the command line, which every user of the machine can read."""
BUSY = (429, 503)
RETRIES = 5
LONGEST_WAIT = 30
"""Seconds before the next try, even where the service asks for more."""
NOT_CACHED = "urn:mobile-sam:image-not-cached"


class Photo:
    """An image at a service: sent once, then named by its id, and sent again where the service has forgotten it.

    A service that is busy is asked again when it says that it may be. Every method raises `requests.RequestException`;
    of a refusal the message holds what the service said, and the id it gave the request.
    """

    def __init__(self, url: str, file: bytes, timeout: float = 60, key: str = "") -> None:
        """Remember the image; nothing is sent yet.

        Args:
            url: where the service listens.
            file: a PNG, JPEG or WebP file.
            timeout: seconds to wait for an answer.
            key: of the API, printable ASCII; empty where none is needed.
        """
        self._url, self._file, self._timeout = url, file, timeout
        self._session = requests.Session()
        if key:
            self._session.auth = _bearer(key)
        self._waited = False
        self.image_id: str | None = None

    def embed(self) -> dict[str, Any]:
        """Have the image encoded ahead of the first prompt; what the service says of it."""
        said: dict[str, Any] = _json(self._post("/embed", {}))
        self.image_id = str(said["image_id"])
        return said

    def segment(self, **fields: Any) -> dict[str, bytes]:
        """Find objects.

        Args:
            fields: of the request, such as `pos_coords=[[320, 240]]`.

        Returns:
            The parts of the answer by name: `mask`, `segmented_image`, `result`.
        """
        response = self._post("/mobile_sam", fields)
        try:
            parts = {_name(part.headers): part.content for part in MultipartDecoder.from_response(response).parts}
        except (NonMultipartContentTypeException, ImproperBodyPartContentException, KeyError) as error:
            raise requests.RequestException(f"{self._url} is no such service: its answer is not multipart") from error
        self.image_id = json.loads(parts["result"])["image_id"]
        return parts

    def everything(self, report: Callable[[int, int], None], **fields: Any) -> dict[str, Any]:
        """Find everything.

        Args:
            report: is told how far the service is, as work done and work in all.
            fields: of the request, such as `points_per_side=16`.

        Returns:
            What the service says of the image, and `masks`: Segment Anything's records.
        """
        response = self._post("/everything", {**fields, "progress": True}, stream=True)
        for line in response.iter_lines():
            step = json.loads(line)
            if "problem" in step:
                raise requests.RequestException(_refusal(response, step["problem"]))
            report(step["done"], step["total"])
            if "result" in step:
                result: dict[str, Any] = step["result"]
                return result
        raise requests.RequestException("the answer ended before the result")

    def _post(self, path: str, fields: dict[str, Any], stream: bool = False) -> requests.Response:
        if self.image_id is not None:
            try:
                return self._send(path, {"image_id": self.image_id, **fields}, stream)
            except requests.HTTPError as error:
                if error.response is None or _problem(error.response).get("type") != NOT_CACHED:
                    raise
        return self._send(path, {"input_image": base64.b64encode(self._file).decode(), **fields}, stream)

    def _send(self, path: str, request: dict[str, Any], stream: bool) -> requests.Response:
        for retries_left in range(RETRIES, -1, -1):
            response = self._session.post(f"{self._url}{path}", json=request, timeout=self._timeout, stream=stream)
            seconds = response.headers.get("Retry-After", "")
            if response.status_code not in BUSY or not seconds.isdecimal() or not retries_left:
                break
            response.close()
            self._wait(response.status_code, min(int(seconds), LONGEST_WAIT))
        if not response.ok:
            raise requests.HTTPError(_refusal(response, _problem(response)), response=response)
        return response

    def _wait(self, status: int, seconds: int) -> None:
        if not self._waited:
            print(f"{status}: trying again in {seconds} s, up to {RETRIES} times", file=sys.stderr)
            self._waited = True
        time.sleep(seconds)


def _bearer(key: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Sends the key; as a plain header it would give way to what `~/.netrc` says of the host."""

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {key}"
        return request

    return sign


def _problem(response: requests.Response) -> dict[str, Any]:
    """The problem document of a refusal; empty where the answer is none."""
    if not response.headers.get("Content-Type", "").startswith("application/problem+json"):
        return {}
    return dict(response.json())


def _refusal(response: requests.Response, problem: dict[str, Any]) -> str:
    """One line on a refusal: status, reason, and the id by which the service's log knows the request."""
    status = problem.get("status", response.status_code)
    reason = problem.get("detail") or (response.text.splitlines() or [response.reason])[0][:200]
    request_id = response.headers.get("X-Request-ID")
    return " ".join(f"{status}: {reason}".split()) + (f" (request {request_id})" if request_id else "")


def _json(response: requests.Response) -> dict[str, Any]:
    try:
        return dict(response.json())
    except (ValueError, TypeError) as error:
        raise requests.RequestException(f"{response.url} is no such service: its answer is not JSON") from error


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


def _show_progress(done: int, total: int) -> None:
    print(f"\r{100 * done // max(total, 1)} %", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Segment an image.", epilog=f"{KEY_VARIABLE}: the service's API key.")
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
    parser.add_argument("--everything", type=Path, metavar="FILE", help="write all objects the service finds as JSON")
    parser.add_argument("--points-per-side", type=int, default=32, help="of the grid for that; default: %(default)s")
    parser.add_argument("--url", default=URL, help="default: %(default)s")
    return parser


def _key() -> str:
    """The API key of the environment; empty where there is none."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        # What came is not shown, here or in the words of a library that fails to send it.
        raise requests.RequestException(f"{KEY_VARIABLE}: expected printable ASCII")
    return key


def _write_object(photo: Photo, options: argparse.Namespace) -> dict[str, Any]:
    """Ask for the object of the prompts and write both files; the result."""
    parts = photo.segment(
        pos_coords=options.point,
        neg_coords=options.negative,
        box=options.box,
        mask_format="png",
        segmented_image=options.picture,
    )
    options.mask_out.write_bytes(parts["mask"])
    options.picture_out.write_bytes(parts["segmented_image"])
    result: dict[str, Any] = json.loads(parts["result"])
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        photo = Photo(options.url, options.image.read_bytes(), key=_key())
        if options.everything:
            result = photo.everything(_show_progress, points_per_side=options.points_per_side)
            options.everything.write_text(json.dumps(result))
        else:
            result = _write_object(photo, options)
    except requests.ConnectionError:
        print(f"error: nothing answers at {options.url}; start it with `make serve`", file=sys.stderr)
        return 1
    except (requests.RequestException, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.image}: {result['width']} x {result['height']} pixels, weights: {result['weights']['name']}")
    if options.everything:
        print(f"{len(result['masks'])} masks\nwrote {options.everything}")
    else:
        mask = result["masks"][0]
        print(f"mask: score {mask['score']}, {mask['area']} pixels in box {mask['box']}")
        print(f"wrote {options.mask_out} and {options.picture_out}")
    if not result["weights"]["trained"]:
        print(f"note: {result['weights']['note']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
