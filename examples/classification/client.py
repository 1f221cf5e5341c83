"""Asks the running example what is on an image: the service by HTTP, or its Triton directly by gRPC.

.venv/bin/python examples/classification/client.py photo.jpg
.venv/bin/python examples/classification/client.py photo.jpg --grpc 127.0.0.1:8001
"""

from __future__ import annotations

import argparse
import base64
import sys
from pathlib import Path

import numpy as np
import requests
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

URL = "http://127.0.0.1:3000"

Classes = list[tuple[str, float]]


def over_http(url: str, image: bytes, top_k: int) -> tuple[Classes, str]:
    """The likeliest classes with their scores, and what the weights are called.

    Raises:
        ValueError: the service refused; the message says why.
    """
    body = {"image": base64.b64encode(image).decode(), "top_k": top_k}
    answer = requests.post(f"{url}/classify", json=body, timeout=60)
    if not answer.ok:
        raise ValueError(f"{answer.status_code}: {answer.json()['detail']}")
    return [(entry["label"], entry["score"]) for entry in answer.json()], answer.headers["X-Weights"]


def over_grpc(address: str, image: bytes, top_k: int) -> tuple[Classes, str]:
    """The same, from the Triton at HOST:PORT. Raises InferenceServerException where it refuses or is not there."""
    given = {"image": np.array([[image]], np.object_), "top_k": np.array([[top_k]], np.int32)}
    inputs = []
    for name, datatype in (("image", "BYTES"), ("top_k", "INT32")):
        inputs.append(tritonclient.grpc.InferInput(name, given[name].shape, datatype))
        inputs[-1].set_data_from_numpy(given[name])
    with tritonclient.grpc.InferenceServerClient(address) as triton:
        answer = triton.infer("classification", inputs, client_timeout=60)
    labels, scores, weights = (answer.as_numpy(name)[0] for name in ("labels", "scores", "weights"))
    return [(label.decode(), float(score)) for label, score in zip(labels, scores, strict=True)], weights[0].decode()


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("image", type=Path, help="a PNG, JPEG or WebP file")
parser.add_argument("--top", type=int, default=5, metavar="K", help="how many classes (default: 5)")
parser.add_argument("--url", default=URL, help="of the service")
parser.add_argument("--grpc", metavar="HOST:PORT", help="ask the Triton there, not the service")
options = parser.parse_args()
try:
    file = options.image.read_bytes()
    ask, where = (over_grpc, options.grpc) if options.grpc else (over_http, options.url)
    found, called = ask(where, file, options.top)
except (OSError, ValueError, InferenceServerException) as error:  # requests' errors are OSErrors
    sys.exit(f"error: {error}")
for label, score in found:
    print(f"{score:.4f}  {label}")
print(f"weights: {called}")
