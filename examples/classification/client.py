"""Classify an image with the running example, over HTTP or over gRPC from its Triton (`OPEN=1`).

.venv/bin/python examples/classification/client.py photo.jpg
.venv/bin/python examples/classification/client.py photo.jpg --grpc 127.0.0.1:8001
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import requests
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

Classes = list[tuple[str, float]]


def over_http(url: str, file: bytes) -> Classes:
    """Return the best classes with their scores from the service."""
    answer = requests.post(f"{url}/classify", files={"image": file}, timeout=60)
    if not answer.ok:
        sys.exit(f"error: {answer.status_code}: {answer.text}")
    return [(entry["label"], entry["score"]) for entry in answer.json()]


def over_grpc(address: str, file: bytes) -> Classes:
    """Return the same from the Triton at HOST:PORT."""
    image = tritonclient.grpc.InferInput("image", [1, 1], "BYTES")
    image.set_data_from_numpy(np.array([[file]], np.object_))
    with tritonclient.grpc.InferenceServerClient(address) as triton:
        answer = triton.infer("classification", [image], client_timeout=60)
    labels, scores = (answer.as_numpy(name)[0].tolist() for name in ("labels", "scores"))
    return [(label.decode(), score) for label, score in zip(labels, scores, strict=True)]


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("image", type=Path, help="PNG, JPEG or WebP file")
parser.add_argument("--url", default="http://127.0.0.1:3000", help="URL of the service")
parser.add_argument(
    "--grpc", metavar="HOST:PORT", help="call Triton at this address instead of the service"
)
options = parser.parse_args()
try:
    content = options.image.read_bytes()
    classes = over_grpc(options.grpc, content) if options.grpc else over_http(options.url, content)
except (OSError, InferenceServerException) as error:  # requests' exceptions are OSErrors
    sys.exit(f"error: {error}")
for label, score in classes:
    print(f"{score:.4f}  {label}")
