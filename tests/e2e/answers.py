"""Parse the service's responses."""

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import requests
from numpy.typing import NDArray
from requests_toolbelt.multipart.decoder import MultipartDecoder

NPY_ONLY: dict[str, Any] = {"mask_format": "npy", "segmented_image": "none"}
"""Fields of a request whose answer `segmentation` parses."""


@dataclass
class Segmentation:
    """The `npy` masks and the `result` part of a response without picture."""

    masks: NDArray[np.bool_]
    result: dict[str, Any]
    encode_s: float | None
    """Only of the first answer about an image."""


def parts(answer: requests.Response) -> list[bytes]:
    """Return the parts of a multipart response; its status must be 200."""
    assert answer.status_code == 200, answer.text
    return [part.content for part in MultipartDecoder.from_response(answer).parts]


def segmentation(answer: requests.Response) -> Segmentation:
    """Parse the response to a request with the fields `NPY_ONLY`."""
    mask, document = parts(answer)
    result = json.loads(document)
    encode_s = result.pop("encode_s", None)
    return Segmentation(np.load(io.BytesIO(mask)), result, encode_s)


def problem(answer: requests.Response) -> dict[str, Any]:
    """Return the problem document of an error response."""
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == answer.status_code
    return document
