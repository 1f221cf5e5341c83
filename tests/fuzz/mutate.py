"""Requests that are nearly right: valid ones to all three paths, changed by a seed.

`requests(seed, count)` is the same sequence each time, and the request at `index` is `request(seed, index)`.
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
"""Headers by which a server tells where a request ends, and what follows it."""


@dataclass(frozen=True)
class FuzzRequest:
    """A request, as it goes out; `Host` is the sender's to add, and `Content-Length` where no header says so."""

    method: str
    path: str
    headers: Headers
    body: bytes

    @property
    def framed(self) -> bool:
        """Whether its own headers say where it ends: a server may rightly hang up on it."""
        return any(name.lower() in FRAMING for name, _ in self.headers)


def requests(seed: int, count: int, first: int = 0) -> Iterator[FuzzRequest]:
    """The requests of a seed from `first` on."""
    return (request(seed, index) for index in range(first, first + count))


def request(seed: int, index: int) -> FuzzRequest:
    """One request of a seed."""
    random = Random(f"{seed} {index}")
    changes, weights = zip(*CHANGES, strict=True)
    change: Callable[[Random, str, Fields], FuzzRequest] = random.choices(changes, weights)[0]
    path = random.choice(("/mobile_sam", "/mobile_sam", "/embed", "/everything"))
    return change(random, path, valid_fields(random, path))


@functools.cache
def images() -> tuple[bytes, ...]:
    """Small valid files of all three formats; few, so that a server has most embeddings at hand."""
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
    """A request that is answered 200 (404 where the server does not know the image it names), and quickly."""
    file = random.choice(images())
    fields: Fields = {"input_image": base64.b64encode(file).decode()}
    if random.random() < 0.1:  # known to the server once it has seen the image itself
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
"""What no field expects, or only another."""
SLOW = {"points_per_side", "crop_n_layers"}
"""Fields that make a request take long where they are left out, or large."""


def unchanged(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """A valid request."""
    return _json(path, json.dumps(fields).encode())


def changed_fields(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Fields left out, added, doubled, moved, and given other values."""
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
    """Every list and object of a request with each of its keys, however deep."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    found = [(node, key) for key in keys]
    return found + [place for key in keys for place in _places(node[key])] or [({"": 0}, "")]


def damaged_text(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """The JSON text, damaged; often outside of the image, which is most of it."""
    whole = json.dumps(fields).encode()
    image = fields.pop("input_image", "")
    text = json.dumps(fields).encode()
    if not image or random.random() < 0.3:
        return _json(path, random_damage(random, whole, [text]))
    return _json(path, f'{{"input_image": "{image}", '.encode() + random_damage(random, text, [whole])[1:])


def damaged_base64(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """The image's text, damaged, cut into lines, in other alphabets, as all kinds of `data:` URL."""
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
    """The image's file, damaged."""
    fields.pop("image_id", None)
    data = random_damage(random, random.choice(images()), images())
    fields["input_image"] = base64.b64encode(data).decode()
    return _json(path, json.dumps(fields).encode())


def odd_headers(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """A valid body with odd headers."""
    valid = unchanged(random, path, fields)
    if random.random() < 0.03:
        return replace(valid, method="GET", headers=list(HANDSHAKE), body=b"")
    headers = list(valid.headers) if random.random() < 0.7 else []
    for _ in range(random.randint(1, 3)):
        name, values = random.choice(HEADERS)
        headers.append((name, random.choice(values)))
    return replace(valid, headers=headers)


def odd_target(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """Another method, another path, or both."""
    valid = unchanged(random, path, fields)
    method = random.choice(METHODS) if random.random() < 0.6 else "POST"
    target = random.choice((path, *PATHS))
    body = random.choice((valid.body, b"", b"{}"))
    return replace(valid, method=method, path=target, body=b"" if method in {"GET", "HEAD"} else body)


def no_request(random: Random, path: str, fields: Fields) -> FuzzRequest:
    """A body that never was one."""
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
    (no_request, 6),
)
"""What is done to requests, and to how many of a hundred."""


def _json(path: str, body: bytes) -> FuzzRequest:
    return FuzzRequest("POST", path, [("Content-Type", "application/json")], body)
