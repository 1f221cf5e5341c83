"""The JSON bodies of requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def body_by_id(image_id: str, fields: Mapping[str, Any]) -> bytes:
    """A request that names its image.

    Raises:
        ValueError: a field is no number, text or list of such.
    """
    return _encode({"image_id": image_id, **fields})


def body_by_file(file: bytes, fields: Mapping[str, Any]) -> bytes:
    """A request that holds its image. It raises what `body_by_id` does."""
    # Base64 needs no escapes: JSON's encoder need not go through megabytes in search of them.
    rest = _encode(fields)[1:]
    comma = b"," if len(rest) > 1 else b""
    return b"".join([b'{"input_image":"', base64.b64encode(file), b'"', comma, rest])


def _encode(fields: Mapping[str, Any]) -> bytes:
    return f"{{{','.join(_member(name, value) for name, value in fields.items())}}}".encode()


def _member(name: str, value: object) -> str:
    try:
        return f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'), allow_nan=False, default=_plain)}"
    except (ValueError, TypeError):
        expected = "finite numbers, truth values, texts or lists of such"
        raise ValueError(f"{name}: expected {expected}, got {value!r}"[:300]) from None


def _plain(value: object) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot stand in a request")
