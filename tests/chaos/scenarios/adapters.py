"""Bodies that an adapter expands, or must read before it can refuse them."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from harness.load import JSON, Request, json_request
from harness.repository import prepare
from tests.chaos.attack import AttackedService
from tests.chaos.callers import photo
from tests.chaos.figures import Figure, Start
from tests.chaos.scenarios.costly import ALL_TOOLS
from tests.chaos.tool_requests import label_config
from tests.chaos.valid_requests import fitting, renew_image, valid_request

PREDICT = "/label-studio/predict"
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_S = 25.0
"""Budget of one request's work."""
OUTLINES = {
    "format": "json",
    "multimask_output": True,
    "content": "flat",
    "image_source": "by id",
    "objects": 80,
    "size": (5000, 5000),
}
"""Options of a request for the outlines of many masks."""


def adapters(start: Start, seconds: float = 15) -> Iterator[Figure]:
    """Send bodies that are small before they are expanded, large ones with little in them, and
    outlines of noise.
    """
    # Random weights have masks of noise, with the longest outlines.
    noise = {"MOBILE_SAM_MODEL_REPOSITORY": str(prepare("random"))}
    with (
        _images() as origin,
        start(**ALL_TOOLS | noise | {"MOBILE_SAM_IMAGE_ORIGINS": origin}) as server,
    ):
        target = AttackedService(server)
        outlines, answer = fitting(server, "/sam2/segment_image", **OUTLINES)
        name, took = f"one request ({answer.status_code})", answer.elapsed.total_seconds()
        nested = valid_request("/label-studio/setup", nested=3600)
        yield Figure("Roboflow: outlines of noise", name, took, MAX_S, "s")
        for name, hostile, connections in (
            ("X-AnyLabeling: 3,300 points x 1,980 rectangles", _points_by_rectangles(), 8),
            ("Label Studio: 3,600 nested tags", nested, 3),
            ("Label Studio: 32 MB of empty objects", _empty_objects(), 8),
            (
                "Label Studio: URLs with fragments of 25 MB",
                _long_url(f"{origin}/photo.jpg#", 25),
                4,
            ),
            ("Label Studio: refused URLs of 30 MB", _long_url("http://192.0.2.1/", 30), 4),
            ("Roboflow: outlines of noise", outlines, 8),
        ):
            yield from target.figures(name, [hostile], connections, seconds)


def _points_by_rectangles() -> Request:
    """Return 19,800 of 20,000 allowed values that stand for 6.5 million points."""
    marks = [{"type": "point", "data": [number % 640, 200]} for number in range(3300)]
    marks += [
        {"type": "rectangle", "data": [0, 0, 1 + number % 639, 200]} for number in range(1980)
    ]
    plain = valid_request("/v1/predict")
    fields = json.loads(plain.body or b"")
    fields["params"]["marks"] = marks
    return json_request(fields, plain.path)


def _empty_objects() -> Request:
    start, end = b'{"label_config": "<View/>", "tasks": [{"data": {"a": [{}', b"]}}]}"
    each = b',{"a":{}}'
    return Request(
        PREDICT, start + each * ((MAX_BODY_BYTES - len(start + end)) // len(each)) + end, JSON
    )


def _long_url(url: str, megabytes: int) -> Request:
    """Return a batch of one image at a URL of this length, another one each time."""
    url += "x" * (megabytes * 10**6)
    task = {"id": 1, "data": {"image": url}}
    return json_request(
        {"label_config": label_config("rectangle", 0), "tasks": [task]}, PREDICT, renew=renew_image
    )


@contextmanager
def _images() -> Iterator[str]:
    """Serve one photo at every path; yield the origin."""
    file = photo(1)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # The service gives up when its caller leaves.
            with contextlib.suppress(ConnectionError):
                self.send_response(200)
                self.send_header("Content-Length", str(len(file)))
                self.end_headers()
                self.wfile.write(file)

        log_message: Callable[..., None] = lambda *_: None

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
