"""Nearly valid requests: valid ones to all three paths, with random changes.

`requests(seed, count)` is reproducible, and the request at `index` is `request(seed, index)`.
"""

from __future__ import annotations

import base64
import copy
import functools
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from tests.fuzz.body_parts import FLOAT32, npy
from tests.fuzz.damage import random_damage
from tests.fuzz.odd_http import HANDSHAKE, HEADERS, METHODS, PATHS

Fields = dict[str, Any]
Headers = list[tuple[str, str]]
FRAMING = ("content-length", "transfer-encoding", "expect", "connection", "upgrade")
"""Headers that determine where a request ends and what follows it."""


@dataclass(frozen=True)
class FuzzRequest:
    """Request as sent, except for `Host`, and `Content-Length` if no header gives the length."""

    method: str
    path: str
    headers: Headers
    body: bytes

    @property
    def framed(self) -> bool:
        """Return whether its headers set the framing; a server may hang up on such a request."""
        return any(name.lower() in FRAMING for name, _ in self.headers)


def requests(seed: int, count: int, first: int = 0) -> Iterator[FuzzRequest]:
    """Return the requests of a seed, starting at `first`."""
    return (request(seed, index) for index in range(first, first + count))


def request(seed: int, index: int) -> FuzzRequest:
    """Return one request of a seed."""
    random = Random(f"{seed} {index}")
    changes, weights = zip(*CHANGES, strict=True)
    change: Callable[[Random, str, Fields], FuzzRequest] = random.choices(changes, weights)[0]
    path = random.choice(("/mobile_sam", "/mobile_sam", "/embed", "/everything"))
    return change(random, path, valid_fields(random, path))


@functools.cache
def images() -> tuple[bytes, ...]:
    """Return small valid files of all formats, few enough for a server to cache their embeddings."""
    files = []
    for number, (width, height) in enumerate(((64, 64), (200, 90), (80, 160), (96, 64))):
        noise = np.random.default_rng(number).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        picture = Image.fromarray(noise).resize((width, height))
        for file_format in ("PNG", "JPEG", "WEBP"):
            file = io.BytesIO()
            picture.save(file, file_format)
            files.append(file.getvalue())
    return tuple(files)


def valid_fields(random: Random, path: str) -> Fields:
    """Return the fields of a fast request, answered with 200, or with 404 if its `image_id` is unknown."""
    file = random.choice(images())
    fields: Fields = {"input_image": base64.b64encode(file).decode()}
    if random.random() < 0.1:  # the server knows it once the image itself was sent
        fields = {"image_id": hashlib.sha256(file).hexdigest()}
    if path == "/everything":
        fields["points_per_side"] = random.randint(1, 3)
        fields["progress"] = random.random() < 0.2
    if path == "/mobile_sam":
        fields |= random.choice((_clicks, _box, _objects))(random)
        fields["mask_format"] = random.choice(("json", "npy", "png", "rle", "polygon"))
        fields["segmented_image"] = random.choice(("overlay", "cutout", "none"))
        fields["multimask_output"] = random.random() < 0.3
    return fields


def _clicks(random: Random) -> Fields:
    points = [[random.randint(0, 63), random.random() * 63] for _ in range(random.randint(1, 4))]
    return {"pos_coords": points, "labels": [random.randint(0, 1) for _ in points]}


def _box(random: Random) -> Fields:
    x, y = random.randint(0, 30), random.randint(0, 30)
    return {"box": [x, y, x + random.randint(1, 30), y + 9.5], "neg_coords": [[x, y]]}


def _objects(random: Random) -> Fields:
    return {"prompts": [random.choice((_clicks, _box))(random) for _ in range(random.randint(1, 5))]}


VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 4, 5, -0.0, 0.5, 1e-300, 1e300, 2**31, 2**63, -(2**63) - 1, 10**30),
    *(float("nan"), float("inf"), "", " ", "0", "null", "NaN", "é", "\ud800", "\0", "\u202e", "A" * 10_000),
    *([], {}, [[]], [{}], [None], [[None]], {"": 0}, {"x": 1, "y": 2}, [[1, 2]] * 300, [1] * 300, [[[[[1]]]]]),
    *("data:image/png;base64,", "AAAA", "=" * 8, "overlay", "png", npy(FLOAT32), npy("{}"), "../../etc/passwd"),
)
"""Values that are invalid for all or most fields."""
SLOW = {"points_per_side", "crop_n_layers"}
"""Fields that make a request slow if they are absent or large."""


def unchanged(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Return a valid request."""
    return _json(path, json.dumps(fields).encode())


def changed_fields(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Remove, add, duplicate and wrap fields, and replace values."""
    twice = b""
    for _ in range(random.randint(1, 3)):
        holder, name = random.choice(_places(fields))
        kind = random.choice(("value", "value", "value", "scale", "drop", "add", "wrap", "twice"))
        value = copy.deepcopy(random.choice(VALUES))
        if kind == "drop" and name not in SLOW:
            holder.pop(name)
        elif kind == "add" and isinstance(holder, dict):
            known = ("image_id", "box", "labels", "mask_input", "low_res_mask", "progress", "min_mask_region_area")
            holder[random.choice((*known, "unknown", "", "\0"))] = value
        elif kind == "scale" and isinstance(holder[name], (int, float)) and name not in SLOW:
            holder[name] = holder[name] * random.choice((-1, 0.1, 10, 1000, 1e9))
        elif kind == "wrap":
            holder[name] = random.choice(([holder[name]], {"value": holder[name]}))
        elif kind == "twice" and isinstance(name, str):
            twice = f"{json.dumps(name)}: {json.dumps(value)}, ".encode()
        else:
            holder[name] = value
    return _json(path, json.dumps(fields).encode().replace(b"{", b"{" + twice, 1))


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return every list and object of a request with each of its keys, at any depth."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    found = [(node, key) for key in keys]
    return found + [place for key in keys for place in _places(node[key])] or [({"": 0}, "")]


def damaged_text(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Damage the JSON text, mostly outside of the image, which is its largest part."""
    whole = json.dumps(fields).encode()
    image = fields.pop("input_image", "")
    text = json.dumps(fields).encode()
    if not image or random.random() < 0.3:
        return _json(path, random_damage(random, whole, [text]))
    return _json(path, f'{{"input_image": "{image}", '.encode() + random_damage(random, text, [whole])[1:])


def damaged_base64(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Damage the image's base64 text, split it into lines, change its alphabet, or make it a `data:` URL."""
    text: str = fields.pop("image_id", "") or fields["input_image"]
    choices = (
        lambda: random_damage(random, text.encode()).decode("latin-1"),
        lambda: text.rstrip("=") + "=" * random.randint(0, 4),
        lambda: text[: random.randint(0, len(text))],
        lambda: random.choice("\n\r\t \0\v\u2028é").join(text[i : i + 76] for i in range(0, len(text), 76)),
        lambda: text.replace("+", "-").replace("/", "_"),
        lambda: random.choice(("data:", "data:;base64", "data:,", "DATA:x;base64,", "data:a/b;c=d;base64,")) + text,
        lambda: base64.b64encode(text.encode()).decode(),
        lambda: base64.b64decode(text).hex(),
        lambda: text * 2,
    )
    fields["input_image"] = random.choice(choices)()
    return _json(path, json.dumps(fields).encode())


def damaged_image(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Damage the image file."""
    fields.pop("image_id", None)
    data = random_damage(random, random.choice(images()), images())
    fields["input_image"] = base64.b64encode(data).decode()
    return _json(path, json.dumps(fields).encode())


def odd_headers(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Add odd headers to a valid body."""
    valid = unchanged(random, path, fields)
    if random.random() < 0.03:
        return replace(valid, method="GET", headers=list(HANDSHAKE), body=b"")
    headers = list(valid.headers) if random.random() < 0.7 else []
    for _ in range(random.randint(1, 3)):
        name, values = random.choice(HEADERS)
        headers.append((name, random.choice(values)))
    return replace(valid, headers=headers)


def odd_target(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Change the method, the path, or both."""
    valid = unchanged(random, path, fields)
    method = random.choice(METHODS) if random.random() < 0.6 else "POST"
    target = random.choice((path, *PATHS))
    body = random.choice((valid.body, b"", b"{}"))
    return replace(valid, method=method, path=target, body=b"" if method in {"GET", "HEAD"} else body)


def random_body(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Return a body that does not derive from a valid one."""
    deep, size = random.choice((b"[", b'{"a":', b'[{"prompts":')), random.choice((10, 190, 201, 3000))
    choices = (
        lambda: random.randbytes(random.randint(0, 200)),
        lambda: deep * size,
        lambda: json.dumps(random.choice(VALUES)).encode(),
        lambda: json.dumps({str(key): 0 for key in range(size)}).encode(),
        lambda: b'{"input_image": "' + b"A" * random.choice((1, 10**5, 10**6)),
        lambda: b'{"pos_coords": [' + b"[1,2]," * random.choice((10, 300, 9999, 50_000)) + b"[1,2]]}",
        lambda: b'{"prompts": [' + b'{"box": [[], {}, "", null]},' * random.choice((9, 255, 4000)) + b"{}]}",
        lambda: b'{"labels": [' + b"9" * random.choice((19, 4300, 4301, 100_000)) + b"]}",
    )
    return _json(path, random.choice(choices)())


CHANGES = (
    (unchanged, 5),
    (changed_fields, 42),
    (damaged_text, 15),
    (damaged_base64, 8),
    (damaged_image, 6),
    (odd_headers, 9),
    (odd_target, 9),
    (random_body, 6),
)
"""Changes with their weights in per cent."""


def _json(path: str, body: bytes) -> FuzzRequest:
    return FuzzRequest("POST", path, [("Content-Type", "application/json")], body)
