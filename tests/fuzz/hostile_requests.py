"""Hypothesis strategies for nearly valid requests: valid ones to all three paths, with one part made wrong."""

import base64
import copy
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st
from PIL import Image

Fields = dict[str, Any]
FRAMING = ("content-length", "transfer-encoding", "expect", "connection", "upgrade")
"""Headers that determine where a request ends and what follows it."""
BATCH = 1000
"""Requests that Hypothesis draws at a time: its memory grows with each."""
FLOAT32 = "{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }"
TOKENS = (
    *(b"\0", b"\xff", b"\0" * 16, b"\xff" * 16, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0", b"\0\0\0\x80"),
    *(b"\xff\xd8\xff", b"\xff\xd9", b"\xff\xda", b"\xff\xe1", b"Exif\0\0II*\0\x08\0\0\0", b"RIFF", b"VP8X", b"ANMF"),
    *(b"IHDR", b"IDAT", b"IEND", b"acTL", b"fcTL", b"iCCP", b"eXIf", b"tRNS", b"\\u0000", b"\\ud800", b"\xc3\x28"),
    *(b"\xef\xbb\xbf", b"NaN", b"Infinity", b"-0", b"1e999", b"9" * 25, b"null", b"true", b"[", b"]", b"{", b"}", b","),
    *(b":", b'"', b"\\"),
)
"""Byte strings with a meaning in images or JSON."""


@dataclass(frozen=True)
class FuzzRequest:
    """Request as sent, except for `Host`, and `Content-Length` if no header gives the length."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def framed(self) -> bool:
        """Return whether its headers set the framing; a server may hang up on such a request."""
        return any(name.lower() in FRAMING for name, _ in self.headers)


def post(path: str, body: bytes) -> FuzzRequest:
    """Return a request with a JSON body."""
    return FuzzRequest("POST", path, (("Content-Type", "application/json"),), body)


def npy(header: str, values: bytes = b"") -> str:
    """Return a NumPy file in base64."""
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode("latin-1") + values
    return base64.b64encode(data).decode()


def image_file(size: tuple[int, int], file_format: str) -> bytes:
    """Return a picture of noise; `size` is width and height in pixels."""
    noise = np.random.default_rng(size).integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize(size).save(file, file_format)
    return file.getvalue()


SIZES = ((64, 64), (200, 90), (80, 160), (96, 64))
IMAGES = tuple(image_file(size, file_format) for size in SIZES for file_format in ("PNG", "JPEG", "WEBP"))
"""Small valid files of all formats, few enough for a server to cache their embeddings."""

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
NUMBERS = st.integers(-2, 300) | st.floats(0, 700) | st.integers() | st.floats()
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, -0.0, 5e-324, 1e-300, 1e300, 2**31, 2**63, -(2**63) - 1, 10**400, float("nan"), float("inf")),
    *(
        "",
        " ",
        "0",
        "null",
        "NaN",
        "é",
        "\ud800",
        "\0",
        "\u202e",
        "A" * 10_000,
        "data:image/png;base64,",
        "AAAA",
        "====",
    ),
    *([], {}, [[]], [{}], [None], [[None]], {"": 0}, {"x": 1, "y": 2}, [[1, 2]] * 300, [1] * 300, [[[[[1]]]]]),
    *("overlay", "png", npy(FLOAT32), npy(FLOAT32, bytes(4 * 256 * 256)), npy("{}"), "../../etc/passwd"),
)
"""Values that are invalid for all or most fields."""
ANY_JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
VALUES = st.one_of(*[st.sampled_from(ODD_VALUES)] * 5, NUMBERS, ANY_JSON)
NAMES = (
    *("input_image", "image_id", "model_version", "pos_coords", "labels", "neg_coords", "box", "mask_input", "prompts"),
    *("low_res_mask", "crop_overlap_ratio", "box_nms_thresh", "min_mask_region_area", "progress", "unknown", "", "\0"),
)
"""Fields to add."""
MAX_GRID, DEFAULT_GRID = 3, 32
"""Largest `points_per_side` that is fast, and the field's default."""

POINTS = st.lists(st.tuples(st.integers(0, 63), st.floats(0, 63)).map(list), min_size=1, max_size=4)
CLICKS = POINTS.map(lambda points: {"pos_coords": points, "labels": [int(x) % 2 for x, _ in points]})
BOXES = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 30)).map(
    lambda box: {"box": [box[0], box[1], box[0] + box[2], box[1] + 9.5], "neg_coords": [[box[0], box[1]]]}
)
PROMPTS = CLICKS | BOXES | st.fixed_dictionaries({"prompts": st.lists(CLICKS | BOXES, min_size=1, max_size=5)})
STYLES: Sequence[Fields] = [
    {"mask_format": mask_format, "segmented_image": picture, "multimask_output": picture == "none"}
    for mask_format in ("json", "npy", "png", "rle", "polygon")
    for picture in ("overlay", "cutout", "none")
]


@st.composite
def valid_fields(draw: st.DrawFn, path: str) -> Fields:
    """Return the fields of a fast request, answered with 200, or with 404 if its `image_id` is unknown."""
    file = draw(st.sampled_from(IMAGES))
    # The server knows an id once the image itself was sent.
    by_id = draw(st.integers(0, 9)) == 9
    fields: Fields = (
        {"image_id": hashlib.sha256(file).hexdigest()} if by_id else {"input_image": base64.b64encode(file).decode()}
    )
    if path == "/everything":
        fields |= {"points_per_side": draw(st.integers(1, 3)), "progress": draw(st.booleans())}
    if path == "/mobile_sam":
        fields |= copy.deepcopy(draw(PROMPTS)) | draw(st.sampled_from(STYLES))
    return fields


@st.composite
def damaged(draw: st.DrawFn, data: bytes, other: bytes = b"") -> bytes:
    """Replace, insert, remove and repeat bytes, mostly near the beginning, or go on with the rest of another file."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, min(len(data), draw(st.sampled_from((100, 1000, len(data)))))))
        end = start + draw(st.sampled_from((0, 1, 1, 2, 4, 4, 30, len(data))))
        match draw(st.integers(0, 5)):
            case 0:
                new = data[start : start + 16] * 3
            case 1:
                new = other[start:]
            case 2 | 3:
                new = draw(st.sampled_from(TOKENS))
            case _:
                new = draw(st.binary(max_size=4))
        data = data[:start] + new + data[end:]
    return data


@st.composite
def damaged_images(draw: st.DrawFn) -> bytes:
    """Return a damaged image file."""
    return draw(damaged(draw(st.sampled_from(IMAGES)), draw(st.sampled_from(IMAGES))))


@st.composite
def changed_fields(draw: st.DrawFn, fields: Fields) -> bytes:
    """Remove, add, duplicate and wrap fields at any depth, and replace values."""
    has_grid, twice = "points_per_side" in fields, ""
    for _ in range(draw(st.integers(1, 3))):
        places = _places(fields)
        holder, name = places[draw(st.integers(0, len(places) - 1))]
        change = draw(st.sampled_from(("replace", "replace", "replace", "replace", "remove", "add", "wrap", "repeat")))
        if change == "remove":
            holder.pop(name)
        elif change == "add":
            fields[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(VALUES))
        elif change == "wrap":
            holder[name] = [holder[name]]
        elif change == "repeat":
            twice = f"{json.dumps(str(name))}: {json.dumps(draw(VALUES))}, "
        else:
            holder[name] = copy.deepcopy(draw(VALUES))
    if has_grid and fields.get("points_per_side", DEFAULT_GRID) in range(MAX_GRID, 65):
        fields["points_per_side"] = MAX_GRID
    return json.dumps(fields).replace("{", "{" + twice, 1).encode()


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return every list and object of a request with each of its keys, at any depth."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    return [(node, key) for key in keys] + [place for key in keys for place in _places(node[key])] or [({"": 0}, "")]


@st.composite
def damaged_text(draw: st.DrawFn, fields: Fields) -> bytes:
    """Damage the JSON text, mostly outside of the image, which is its largest part."""
    whole = json.dumps(fields).encode()
    image: str = fields.pop("input_image", "")
    text = json.dumps(fields).encode()
    if not image or draw(st.integers(0, 2)) == 0:
        return draw(damaged(whole, text))
    return f'{{"input_image": "{image}", '.encode() + draw(damaged(text, whole))[1:]


@st.composite
def damaged_base64(draw: st.DrawFn, fields: Fields) -> bytes:
    """Damage the image's base64 text, split it into lines, change its alphabet, or make it a `data:` URL."""
    text: str = fields.pop("image_id", "") or fields["input_image"]
    if draw(st.booleans()):
        text = draw(damaged(text.encode())).decode("latin-1")
    number = draw(st.integers(0, len(text)))
    prefix = draw(st.sampled_from(("data:", "data:;base64", "data:,", "DATA:x;base64,", "data:a/b;base64,")))
    changed = (
        text,
        text.rstrip("=") + "=" * (number % 5),
        text[:number],
        draw(st.sampled_from("\n\r\t \0\v\u2028é")).join(text[i : i + 76] for i in range(0, len(text), 76)),
        text.replace("+", "-").replace("/", "_"),
        prefix + text,
        base64.b64encode(text.encode()).decode(),
        text * 2,
    )
    return json.dumps(fields | {"input_image": draw(st.sampled_from(changed))}).encode()


@st.composite
def damaged_image(draw: st.DrawFn, fields: Fields) -> bytes:
    """Damage the image file."""
    fields.pop("image_id", None)
    return json.dumps(fields | {"input_image": base64.b64encode(draw(damaged_images())).decode()}).encode()


LONG = (
    (b"", b"[", b""),
    (b"", b'{"a":', b""),
    (b"", b'[{"prompts":', b""),
    (b'{"input_image": "', b"A" * 20, b""),
    (b'{"pos_coords": [', b"[1,2],", b"[1,2]]}"),
    (b'{"prompts": [', b'{"box": [[], {}, "", null]},', b"{}]}"),
    (b'{"labels": [', b"9", b"]}"),
    (b'{"a": 0', b', "a": 0', b"}"),
)
"""Start of a long body, the part to repeat, and its end."""


@st.composite
def other_body(draw: st.DrawFn, fields: Fields) -> bytes:
    """Return a body that does not derive from a valid one: long and deep, random bytes, or any JSON."""
    start, part, end = draw(st.sampled_from(LONG))
    size = draw(st.sampled_from((10, 190, 201, 3000, 9999, 50_000)))
    document = VALUES.map(lambda value: json.dumps(value).encode())
    return bytes(draw(st.just(start + part * size + end) | st.binary(max_size=200) | document))


CONTENT_TYPES = (
    *("", " ", "text/plain", "application/json; charset=utf-16", "application/json;", "APPLICATION/JSON", "json"),
    *("application/problem+json", "application/x-www-form-urlencoded", "multipart/form-data", "*/*", "a" * 5000),
    *("multipart/form-data; boundary=x", "application/json, text/html", "application/json\xff", '";"/";"'),
)
HEADERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Content-Type", CONTENT_TYPES),
    ("Content-Encoding", ("gzip", "br", "identity", "x")),
    ("Content-Length", ("0", "1", "-1", "+5", "0x10", "1e3", "", "99999999999999999999", "abc", "5, 5")),
    ("Transfer-Encoding", ("chunked", "identity", "gzip, chunked", "chunked, chunked", "x")),
    ("Accept", ("text/html", "image/png", "application/json", "", "*/*;q=0", "x" * 9000)),
    ("Accept-Encoding", ("gzip", "br;q=9", "identity;q=0, *;q=0", "")),
    ("Expect", ("100-continue", "200-ok")),
    ("Connection", ("close", "upgrade", "keep-alive, x", "")),
    ("Upgrade", ("websocket", "h2c", "TLS/1.0")),
    ("Authorization", ("Bearer", "Bearer \xff", "Basic Og==", "x" * 3000)),
    ("Range", ("bytes=0-1", "bytes=-9999999999999")),
    ("If-None-Match", ("*", '"x"')),
    ("Host", ("", "a b", "[::1", "x" * 1000, "evil.example:99999")),
    ("X-Forwarded-For", ("127.0.0.1", "x", ", ,", "::1%0", "1" * 3000)),
    ("X-Request-Id", ("\xff", "a" * 2000, "{}")),
    ("traceparent", ("00-0-0-0", "x", "00-" + "f" * 32 + "-" + "f" * 16 + "-ff")),
    ("Cookie", ("a" * 4000, "=;=;", "\xe9")),
    ("Bentoml-Payload-Meta", ("{}", "x", "[")),
    ("X" * 300, ("x",)),
)
"""Headers with odd values."""
HANDSHAKE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)
"""Headers of a WebSocket handshake."""

METHODS = ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "post", "BREW", "POST")
PATHS = (
    *("/", "", "//", "/mobile_sam/", "//mobile_sam", "/Mobile_Sam", "/mobile_sam?x=1", "/mobile_sam%00", "/embed;x=1"),
    *("/embed#x", "/../mobile_sam", "/%2e%2e/%2e%2e/etc/passwd", "/static_content/../service.py", "/docs.json"),
    *("/static_content/swagger-ui.css", "/static_content/%2e%2e/%2e%2e/main.py", "/livez", "/readyz", "/healthz"),
    *("/metrics", "/v2/models", "/v2/repository/index", "/%ff%fe", "/%", "/a" * 2000, "http://x/mobile_sam", "*"),
    *("/mobile_sam/predict", "/favicon.ico", "/.env", "/docs", "/schema.json", "/?a[]=1&a=%zz", "/%C3%A9"),
)


@st.composite
def odd_headers(draw: st.DrawFn, request: FuzzRequest) -> FuzzRequest:
    """Add odd headers to a valid request, or ask for a WebSocket."""
    if draw(st.integers(0, 30)) == 30:
        return replace(request, method="GET", headers=HANDSHAKE, body=b"")
    headers = list(request.headers) if draw(st.integers(0, 2)) else []
    for _ in range(draw(st.integers(1, 3))):
        name, values = draw(st.sampled_from(HEADERS))
        headers.append((name, draw(st.sampled_from(values))))
    return replace(request, headers=tuple(headers))


@st.composite
def odd_target(draw: st.DrawFn, request: FuzzRequest) -> FuzzRequest:
    """Change the method, the path, or both."""
    method = draw(st.sampled_from((*METHODS, *["POST"] * len(METHODS))))
    body = b"" if method in {"GET", "HEAD"} else draw(st.sampled_from((request.body, b"", b"{}")))
    return replace(request, method=method, path=draw(st.sampled_from((request.path, *PATHS))), body=body)


ODDITIES: list[Callable[[FuzzRequest], st.SearchStrategy[FuzzRequest]]] = [st.just, *[odd_headers, odd_target] * 3]
CHANGES = [changed_fields] * 9 + [damaged_text] * 3 + [damaged_base64] * 2 + [damaged_image, other_body]
"""Changes of bodies, as often as each is made; a fifth of all requests have a valid one."""


@st.composite
def hostile_requests(draw: st.DrawFn) -> FuzzRequest:
    """Return a request to one of the three paths with a changed body, headers, method or path, or an unchanged one."""
    path = draw(st.sampled_from(("/mobile_sam", "/mobile_sam", "/everything", "/embed")))
    fields = draw(valid_fields(path))
    if draw(st.integers(0, 4)):
        return post(path, draw(draw(st.sampled_from(CHANGES))(fields)))
    request = post(path, json.dumps(fields).encode())
    return draw(draw(st.sampled_from(ODDITIES))(request))


def requests_of_batch(seed: int, batch: int, size: int = BATCH) -> list[FuzzRequest]:
    """Return `size` requests, always the same of a seed and a batch."""
    found: list[FuzzRequest] = []

    @hypothesis.seed(f"{seed} {batch}")
    @hypothesis.settings(
        max_examples=size,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(hostile_requests())
    def generate(request: FuzzRequest) -> None:
        found.append(request)

    generate()
    return found[:size]
