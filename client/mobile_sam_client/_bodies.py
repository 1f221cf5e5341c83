"""The JSON bodies of requests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np


def body_with_image_id(image_id: str, fields: Mapping[str, Any]) -> bytes:
    """Return a request body with an image id.

    Raises:
        ValueError: a field is not a finite number, bool, string or list of these.
    """
    return _encode({"image_id": image_id, **fields})


def body_with_image_file(file: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return a request body with an image file. Raises as `body_with_image_id`."""
    # Base64 needs no escaping, so the file bypasses the JSON encoder, which would scan megabytes.
    other_fields = _encode(fields)[1:]
    comma = b"," if len(other_fields) > 1 else b""
    return b"".join([b'{"input_image":"', base64.b64encode(file), b'"', comma, other_fields])


def _encode(fields: Mapping[str, Any]) -> bytes:
    return f"{{{','.join(_member(name, value) for name, value in fields.items())}}}".encode()


def _member(name: str, value: object) -> str:
    try:
        return f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'), allow_nan=False, default=_to_python)}"
    except (ValueError, TypeError):
        expected = "finite numbers, bools, strings or lists of these"
        raise ValueError(f"{name}: expected {expected}, got {value!r}"[:300]) from None


def _to_python(value: object) -> Any:
    """Convert NumPy scalars to Python numbers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
