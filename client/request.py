"""Segment an image, using only `requests` and `requests_toolbelt`.

    python client/request.py photo.jpg --point 320,240
    python client/request.py photo.jpg --box 100,80,400,360 --negative 150,300 --picture cutout
    python client/request.py photo.jpg --everything records.json

The first two write `mask.png` (white on black) and `segmented_image.png`, and print score, area and box of the mask.
The third writes all objects. The API key, if needed, is read from the environment variable `MOBILE_SAM_API_KEY`.
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
"""Not a command-line option, because command lines are visible to all users of the machine."""
RETRYABLE_STATUSES = (429, 503)
MAX_RETRIES = 5
MAX_RETRY_WAIT_S = 30
"""Upper bound, also for the wait that the service asks for."""
NOT_CACHED = "urn:mobile-sam:image-not-cached"


class Photo:
    """An image at a service: uploaded once, then sent as its id, and uploaded again if no longer cached.

    Requests are retried while the service is busy, after the time given by `Retry-After`. Every method raises
    `requests.RequestException`; the message contains the service's error and the request id.
    """

    def __init__(self, url: str, file: bytes, timeout: float = 60, key: str = "") -> None:
        """Keep the image; nothing is sent yet.

        Args:
            url: URL of the service.
            file: a PNG, JPEG or WebP file.
            timeout: seconds to wait for an answer.
            key: API key, printable ASCII; empty for none.
        """
        self._url, self._file, self._timeout = url, file, timeout
        self._session = requests.Session()
        if key:
            self._session.auth = _bearer(key)
        self._retry_reported = False
        self.image_id: str | None = None

    def embed(self) -> dict[str, Any]:
        """Encode the image ahead of the first prompt and return the service's answer."""
        answer: dict[str, Any] = _json(self._post("/embed", {}))
        self.image_id = str(answer["image_id"])
        return answer

    def segment(self, **fields: Any) -> dict[str, bytes]:
        """Segment objects.

        Args:
            fields: request fields, such as `pos_coords=[[320, 240]]`.

        Returns:
            The parts of the answer by name: `mask`, `segmented_image`, `result`.
        """
        response = self._post("/mobile_sam", fields)
        try:
            parts = {_name(part.headers): part.content for part in MultipartDecoder.from_response(response).parts}
        except (NonMultipartContentTypeException, ImproperBodyPartContentException, KeyError) as error:
            raise requests.RequestException(f"{self._url} is not a MobileSAM service: not multipart") from error
        self.image_id = json.loads(parts["result"])["image_id"]
        return parts

    def everything(self, report: Callable[[int, int], None], **fields: Any) -> dict[str, Any]:
        """Segment everything.

        Args:
            report: called with the number of steps done and the total.
            fields: request fields, such as `points_per_side=16`.

        Returns:
            The result of the service; `masks` are Segment Anything's records.
        """
        response = self._post("/everything", {**fields, "progress": True}, stream=True)
        for line in response.iter_lines():
            step = json.loads(line)
            if "problem" in step:
                raise requests.RequestException(_error_text(response, step["problem"]))
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
        for retries_left in range(MAX_RETRIES, -1, -1):
            response = self._session.post(f"{self._url}{path}", json=request, timeout=self._timeout, stream=stream)
            seconds = response.headers.get("Retry-After", "")
            if response.status_code not in RETRYABLE_STATUSES or not seconds.isdecimal() or not retries_left:
                break
            response.close()
            self._wait(response.status_code, min(int(seconds), MAX_RETRY_WAIT_S))
        if not response.ok:
            raise requests.HTTPError(_error_text(response, _problem(response)), response=response)
        return response

    def _wait(self, status: int, seconds: int) -> None:
        if not self._retry_reported:
            print(f"{status}: retrying in {seconds} s, up to {MAX_RETRIES} times", file=sys.stderr)
            self._retry_reported = True
        time.sleep(seconds)


def _bearer(key: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    """Return an auth hook that sends the key: credentials in `~/.netrc` would override a plain header."""

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {key}"
        return request

    return sign


def _problem(response: requests.Response) -> dict[str, Any]:
    """Return the problem document of a response, or an empty one."""
    if not response.headers.get("Content-Type", "").startswith("application/problem+json"):
        return {}
    return dict(response.json())


def _error_text(response: requests.Response, problem: dict[str, Any]) -> str:
    """Return one line with status, reason and request id."""
    status = problem.get("status", response.status_code)
    reason = problem.get("detail") or (response.text.splitlines() or [response.reason])[0][:200]
    request_id = response.headers.get("X-Request-ID")
    return " ".join(f"{status}: {reason}".split()) + (f" (request {request_id})" if request_id else "")


def _json(response: requests.Response) -> dict[str, Any]:
    try:
        return dict(response.json())
    except (ValueError, TypeError) as error:
        raise requests.RequestException(f"{response.url} is not a MobileSAM service: not JSON") from error


def _name(headers: Any) -> str:
    """Return a part's name from its Content-Disposition header."""
    message = Message()
    message["Content-Disposition"] = headers[b"Content-Disposition"].decode()
    return str(message.get_param("name", header="Content-Disposition"))


def _numbers(count: int) -> Any:
    def numbers(text: str) -> list[float]:
        values = [float(value) for value in text.split(",")]
        if len(values) != count:
            raise argparse.ArgumentTypeError(f"expected {count} comma-separated numbers, got {text!r}")
        return values

    return numbers


def _show_progress(done: int, total: int) -> None:
    print(f"\r{100 * done // max(total, 1)} %", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Segment an image.", epilog=f"{KEY_VARIABLE}: the service's API key.")
    parser.add_argument("image", type=Path, help="PNG, JPEG or WebP file")
    parser.add_argument(
        "--point", type=_numbers(2), metavar="X,Y", action="append", default=[], help="point on the object"
    )
    parser.add_argument(
        "--negative", type=_numbers(2), metavar="X,Y", action="append", default=[], help="point outside the object"
    )
    parser.add_argument("--box", type=_numbers(4), metavar="X0,Y0,X1,Y1", help="box around the object")
    parser.add_argument("--picture", choices=["overlay", "cutout"], default="overlay", help="default: %(default)s")
    parser.add_argument("--mask-out", type=Path, default=Path("mask.png"), help="default: %(default)s")
    parser.add_argument("--picture-out", type=Path, default=Path("segmented_image.png"), help="default: %(default)s")
    parser.add_argument("--everything", type=Path, metavar="FILE", help="segment everything, write JSON")
    parser.add_argument("--points-per-side", type=int, default=32, help="grid for --everything; default: %(default)s")
    parser.add_argument("--url", default=URL, help="URL of the service; default: %(default)s")
    return parser


def _key() -> str:
    """Return the API key from the environment; empty for none."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        # Raised here, because a library failing to send the key would quote it.
        raise requests.RequestException(f"{KEY_VARIABLE}: expected printable ASCII")
    return key


def _write_object(photo: Photo, options: argparse.Namespace) -> dict[str, Any]:
    """Segment the object, write mask and picture, and return the result."""
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
    """Run the command line and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        photo = Photo(options.url, options.image.read_bytes(), key=_key())
        if options.everything:
            result = photo.everything(_show_progress, points_per_side=options.points_per_side)
            options.everything.write_text(json.dumps(result))
        else:
            result = _write_object(photo, options)
    except requests.ConnectionError:
        print(f"error: cannot connect to {options.url}; start it with `make serve`", file=sys.stderr)
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
