"""Reading the service's answers."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import requests
from numpy.typing import NDArray
from requests_toolbelt.multipart.decoder import MultipartDecoder


@dataclass
class Found:
    """An answer without picture: `masks` as np.load reads them, and the result part."""

    masks: NDArray[np.bool_]
    result: dict[str, Any]


def parts(answer: requests.Response) -> list[bytes]:
    """The parts of an answer that must be a 200."""
    assert answer.status_code == 200, answer.text
    return [part.content for part in MultipartDecoder.from_response(answer).parts]


def found(answer: requests.Response) -> Found:
    """An answer to a request for `npy` without picture."""
    mask, result = parts(answer)
    return Found(np.load(io.BytesIO(mask)), json.loads(result))


def problem(answer: requests.Response) -> dict[str, Any]:
    """The problem document of a refusal."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == answer.status_code
    return document
