"""Classify an image with the running example, over HTTP or over gRPC from its Triton.

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
    """Return the best classes with scores, and the name of the weights.

    Raises:
        ValueError: the service rejected the request; the message says why.
    """
    body = {"image": base64.b64encode(image).decode(), "top_k": top_k}
    answer = requests.post(f"{url}/classify", json=body, timeout=60)
    if not answer.ok:
        raise ValueError(f"{answer.status_code}: {answer.json()['detail']}")
    return [(entry["label"], entry["score"]) for entry in answer.json()], answer.headers["X-Weights"]


def over_grpc(address: str, image: bytes, top_k: int) -> tuple[Classes, str]:
    """Return the same from the Triton at HOST:PORT. Raises InferenceServerException."""
    values = {"image": np.array([[image]], np.object_), "top_k": np.array([[top_k]], np.int32)}
    inputs = []
    for name, datatype in (("image", "BYTES"), ("top_k", "INT32")):
        inputs.append(tritonclient.grpc.InferInput(name, values[name].shape, datatype))
        inputs[-1].set_data_from_numpy(values[name])
    with tritonclient.grpc.InferenceServerClient(address) as triton:
        answer = triton.infer("classification", inputs, client_timeout=60)
    labels, scores, weights = (answer.as_numpy(name)[0] for name in ("labels", "scores", "weights"))
    return [(label.decode(), float(score)) for label, score in zip(labels, scores, strict=True)], weights[0].decode()


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("image", type=Path, help="PNG, JPEG or WebP file")
parser.add_argument("--top", type=int, default=5, metavar="K", help="number of classes (default: 5)")
parser.add_argument("--url", default=URL, help="URL of the service")
parser.add_argument("--grpc", metavar="HOST:PORT", help="call Triton at this address instead of the service")
options = parser.parse_args()
try:
    file = options.image.read_bytes()
    classify, address = (over_grpc, options.grpc) if options.grpc else (over_http, options.url)
    classes, weights_name = classify(address, file, options.top)
except (OSError, ValueError, InferenceServerException) as error:  # requests' exceptions are OSErrors
    sys.exit(f"error: {error}")
for label, score in classes:
    print(f"{score:.4f}  {label}")
print(f"weights: {weights_name}")
