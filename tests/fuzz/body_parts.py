"""Building blocks of the corpus's bodies: a request on an image of two pixels, with parts replaced."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.png_files import png

IMAGE = base64.b64encode(png(np.full((1, 2, 3), 99, np.uint16))).decode()
PROMPT: dict[str, Any] = {"pos_coords": [[1, 0.5]]}
FLOAT32 = "{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }"


@dataclass(frozen=True)
class OddBody:
    """Body with the expected response."""

    data: bytes
    status: int = 200
    field: str | None = None
    """Field of the first error, if the body is rejected."""


def body(**fields: Any) -> bytes:
    """Return a click on the image with these fields added or replaced; None removes a field."""
    all_fields = {"input_image": IMAGE, **PROMPT, **fields}
    return json.dumps({name: value for name, value in all_fields.items() if value is not None}).encode()


def around(text: bytes) -> bytes:
    """Return a request on the image with this text as its other fields."""
    return b'{"input_image": "' + IMAGE.encode() + b'", ' + text + b"}"


def npy(header: str, values: bytes = b"", version: bytes = b"\1\0") -> str:
    """Return a NumPy file in base64."""
    data = b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header.encode("latin-1") + values
    return base64.b64encode(data).decode()
