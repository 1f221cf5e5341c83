"""Requests with hostile strings in every field and header, and detection of log lines that they have forged."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator

from tests.fuzz.hostile_text import BEGINNINGS, hostile_text

LINES = re.compile(
    r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} \[(DEBUG|INFO|WARNING|ERROR|CRITICAL)\] \[[\w: -]+\] "  # BentoML's
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ [\w.]+:\d+\] "  # Triton's
    r'|\{"time":"20\d\d-'  # the service's own, as JSON
    r"|Signal \(\d+\) received\.$"
)
"""Start of every genuine line."""
PATHS = ("/mobile_sam", "/embed", "/everything")
FIELDS = (
    *("input_image", "image_id", "model_version", "pos_coords", "labels", "neg_coords", "box", "mask_input", "prompts"),
    *("multimask_output", "mask_format", "segmented_image", "low_res_mask", "points_per_side", "pred_iou_thresh"),
    *("stability_score_thresh", "stability_score_offset", "box_nms_thresh", "crop_n_layers", "crop_nms_thresh"),
    *("crop_overlap_ratio", "crop_n_points_downscale_factor", "min_mask_region_area", "progress"),
)
HEADERS = (
    *("Host", "User-Agent", "X-Request-ID", "Authorization", "X-API-Key", "Content-Type", "Content-Length", "Accept"),
    *("Content-Encoding", "Transfer-Encoding", "Origin", "Access-Control-Request-Method", "Cookie", "traceparent"),
    *("tracestate", "baggage", "X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Referer", "Range", "Expect"),
    *("If-None-Match", "Accept-Language", "Upgrade", "Connection", "Bentoml-Payload-Meta", "X-B3-TraceId"),
)


def attempts(seed: int, count: int) -> Iterator[bytes]:
    """Return requests that close their connection, each with a hostile string in one place.

    The places are fields, headers and their names, the path, the query, the method and the version.

    Args:
        seed: seed of the requests.
        count: number of requests.
    """
    draw = random.Random(seed)
    for number in range(count):
        text = hostile_text(draw)
        raw = text.encode("utf-8", "surrogatepass")
        quoted = b"".join(b"%%%02x" % byte if byte <= 32 or byte >= 127 else bytes([byte]) for byte in raw)
        path, headers, body = draw.choice(PATHS), b"", b"{}"
        line = f"POST {path} HTTP/1.1".encode()
        match number % 10:
            case 0 | 1 | 2 | 3:
                body = _body(draw.choice(FIELDS), text, draw)
            case 4:
                body = json.dumps({text: 1} if draw.random() < 0.5 else {"prompts": [{text: [[1, 2]]}]}).encode()
            case 5 | 6:
                headers = draw.choice(HEADERS).encode() + b": " + raw + b"\r\n"
            case 7:
                line = b"POST " + draw.choice((b"/", b"/mobile_sam/", b"/admin/models/")) + quoted + b" HTTP/1.1"
            case 8:
                line = draw.choice((b"GET /?%s HTTP/1.1", b"%s / HTTP/1.1", b"GET / %s", b"GET /%s HTTP/1.1")) % raw
            case _:
                headers = raw + b": x\r\n"
        size = b"Content-Length: %d\r\nContent-Type: application/json\r\nHost: x\r\nConnection: close\r\n" % len(body)
        yield line + b"\r\n" + headers + size + b"\r\n" + body


def _body(field: str, text: str, draw: random.Random) -> bytes:
    value: object = draw.choice((text, [text], {text: text}, [[text, 1]]))
    if draw.random() < 0.3:
        return json.dumps({"prompts": [{field: value}]}).encode()
    return json.dumps({"pos_coords": [[1, 1]], "image_id": "0" * 64, field: value}).encode()


def count_forged(log: bytes) -> Counter[str]:
    """Count forged lines and control characters in a log.

    Args:
        log: log since the first hostile string was sent.

    Returns:
        Number of `lines` that do not begin like the service's, and of `characters` that are not printable.
    """
    found: Counter[str] = Counter()
    # Bytes that are not UTF-8 become unprintable characters.
    for line in log.decode("utf-8", "surrogateescape").split("\n"):
        if line and (not LINES.match(line) or line.startswith(BEGINNINGS)):
            found["lines"] += 1
        # The service's own line breaks are only \n.
        found["characters"] += sum(not char.isprintable() for char in line)
    return found
