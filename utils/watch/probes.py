"""Real inferences that show whether Triton's models work, over HTTP with the standard library alone.

The watchdog is a process that should be small and depend on little: tritonclient brings 60 MB with it. The wire format
is that of Triton's binary tensor data extension of the v2 inference protocol.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import http.client
import json
import math
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from utils import tensors
from utils.tensors import Tensor
from utils.versions import DECODER, ENCODER

PROBES_VARIABLE, SERVER_ONLY = "MOBILE_SAM_TRITON_PROBES", "server"
"""Set to that for a repository with other models than this project's: only the server itself is asked."""
SERVER = "tritonserver"
REQUEST_ID = "probe"
"""By which the orchestrator knows what it does not count."""
FRAME = 1024
"""Side of the square that the encoder takes, in pixels."""
SUCCESSES = re.compile(r'^nv_inference_request_success\{model="([^"]+)",version="[^"]+"\} (\d+)', re.MULTILINE)
WORK = re.compile(r'^mobile_sam_stage_seconds_total\{model="([^"]+)",[^}]*\} ([0-9.e+-]+)', re.MULTILINE)

# 8 x 8 pixels, grey: small enough to write down, and an image like any other to the models.
IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAEElEQVR4nGNsYIAAJgaKGAAmCACQXTClHgAAAABJRU5ErkJggg=="
)
CLICK = struct.pack("<2f", 4, 4)
POSITIVE = struct.pack("<i", 1)


Question = Callable[[int, float], None]
"""Given the port of Triton's HTTP and seconds to wait for a byte; raises `ProbeError` or `OSError`."""


class ProbeError(Exception):
    """A model did not answer as it should; the message says how."""


class NotLoadedError(ProbeError):
    """There is no such model: an operator has unloaded it, or it is not loaded yet."""


@dataclass(frozen=True)
class Probe:
    """One inference."""

    model: str
    inputs: Sequence[tuple[str, str, Sequence[int], bytes]]
    """Name, data type, shape and little-endian values of each."""
    outputs: Sequence[str]
    problems: Sequence[str] = field(default_factory=tuple)
    """Problems that are an answer as good as a mask."""


class Request(NamedTuple):
    """Of HTTP."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


def probes() -> list[Probe]:
    """An inference for each model of the repository."""
    orchestrated = [
        _of(tensors.POINT_COORDS, (1, 1, 2), CLICK),
        _of(tensors.POINT_LABELS, (1, 1), POSITIVE),
        _of(tensors.MASK_FORMAT, (1,), _text(b"rle")),
    ]
    image = _of(tensors.INPUT_IMAGE, (1,), _text(IMAGE))
    image_id = _of(tensors.IMAGE_ID, (1,), _text(hashlib.sha256(IMAGE).hexdigest().encode()))
    batch = [
        _of(tensors.CROP_BOX, (4,), struct.pack("<4i", 0, 0, 8, 8)),
        _of(tensors.GRID_COORDS, (1, 2), CLICK),
        _of(tensors.STABILITY_SCORE_OFFSET, (1,), struct.pack("<f", 1)),
        _of(tensors.MIN_MASK_REGION_AREA, (1,), struct.pack("<i", 0)),
    ]
    answer = [output.name for output in tensors.SEGMENT_OUTPUTS]
    records = [output.name for output in tensors.EVERYTHING_OUTPUTS]
    frame = [
        ("images", "UINT8", (1, FRAME, FRAME, 3), bytes(FRAME * FRAME * 3)),
        ("sizes_hw", "INT32", (1, 2), struct.pack("<2i", FRAME, FRAME)),
    ]
    prompt = [
        ("image_embeddings", "FP16", (1, 64, 64, 256), bytes(256 * 64 * 64 * 2)),
        ("point_coords", "FP32", (1, 1, 2), CLICK),
        ("point_labels", "FP32", (1, 1), struct.pack("<f", 1)),
        ("mask_input", "FP32", (1, 1, 256, 256), bytes(256 * 256 * 4)),
        ("has_mask_input", "FP32", (1,), bytes(4)),
    ]
    return [
        Probe(ENCODER, frame, ["image_embeddings"]),
        Probe(DECODER, prompt, ["iou_predictions"]),
        Probe(tensors.SEGMENT, [image, *orchestrated], answer),
        Probe(tensors.SEGMENT_COSTLY, [image, *orchestrated], answer),
        # Where no embeddings are kept, this one answers nothing else.
        Probe(tensors.SEGMENT_CACHED, [image_id, *orchestrated], answer, ("image-not-cached",)),
        Probe(tensors.EVERYTHING, [image, *batch], records),
    ]


def questions() -> dict[str, Question]:
    """What to ask the Triton of this service, by the name of the model, or `SERVER` for Triton itself."""
    if os.environ.get(PROBES_VARIABLE) == SERVER_ONLY:
        return {SERVER: ask_server}
    return {probe.model: functools.partial(ask, probe) for probe in probes()}


def ask_server(port: int, timeout: float) -> None:
    """Ask this machine's Triton whether it and all its models are ready.

    Raises:
        ProbeError: they are not.
        OSError: Triton cannot be reached, or not in time.
    """
    status, _, _ = _exchange(port, timeout, Request("GET", "/v2/health/ready", b"", {}))
    if status != 200:
        raise ProbeError("it is not ready")


def is_ready(model: str, version: int, port: int, timeout: float) -> bool:
    """Whether a version of a model can be asked; not where Triton cannot, or not in time.

    Args:
        model: its name.
        version: of it.
        port: of Triton's HTTP.
        timeout: seconds without a byte.
    """
    path = f"/v2/models/{model}/versions/{version}/ready"
    try:
        return _exchange(port, timeout, Request("GET", path, b"", {}))[0] == 200
    except OSError:
        return False


def ask(probe: Probe, port: int, timeout: float) -> None:
    """Run an inference on this machine's Triton.

    Args:
        probe: which.
        port: of Triton's HTTP.
        timeout: seconds without a byte.

    Raises:
        ProbeError: an answer that is an error, or that lacks an output.
        OSError: Triton cannot be reached, or not in time.
    """
    inputs = [
        {"name": name, "datatype": kind, "shape": list(shape), "parameters": {"binary_data_size": len(data)}}
        for name, kind, shape, data in probe.inputs
    ]
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in probe.outputs]
    head = json.dumps({"id": REQUEST_ID, "inputs": inputs, "outputs": outputs}).encode()
    body = b"".join([head, *(data for _, _, _, data in probe.inputs)])
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    request = Request("POST", f"/v2/models/{probe.model}/infer", body, headers)
    status, length, answer = _exchange(port, timeout, request)
    if status != 200:
        if b"unknown model: '%s'" % probe.model.encode() in answer:
            raise NotLoadedError(f"{probe.model} is not loaded")
        raise ProbeError(f"{probe.model} answered {status}: {answer[:200].decode('utf-8', 'replace')}")
    try:
        found = _outputs(answer, length)
        problem = found.get("problem", b"")[4:]
        slug = json.loads(problem)["slug"] if problem else ""
    except (ValueError, KeyError, TypeError):
        raise ProbeError(f"{probe.model} answered what is no answer of Triton's: {answer[:80]!r}") from None
    missing = [name for name in probe.outputs if not found.get(name)]
    if slug and slug not in probe.problems:
        raise ProbeError(f"{probe.model} answered {problem[:200].decode('utf-8', 'replace')}")
    if missing:
        raise ProbeError(f"{probe.model} answered without {', '.join(missing)}")


class Counted(NamedTuple):
    """What Triton's metrics tell of each model."""

    successes: Mapping[str, float]
    """Requests answered without an error since it was loaded."""
    work: Mapping[str, float]
    """Seconds spent on requests, those that are not over yet included; of the orchestrator's models."""


def counted(port: int, timeout: float) -> Counted:
    """Look at Triton's metrics.

    Args:
        port: of Triton's metrics.
        timeout: seconds without a byte.

    Raises:
        OSError: Triton cannot be reached, or not in time.
    """
    _, _, text = _exchange(port, timeout, Request("GET", "/metrics", b"", {}))
    sums: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for found, pattern in zip(sums, (SUCCESSES, WORK), strict=True):
        for model, value in pattern.findall(text.decode()):
            found[model] = found.get(model, 0.0) + float(value)  # of all versions and stages together
    return Counted(*sums)


def _exchange(port: int, timeout: float, request: Request) -> tuple[int, int, bytes]:
    """Status, length of the JSON before binary values, and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(request.method, request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        answer = response.read()
        return response.status, int(response.headers.get("Inference-Header-Content-Length", len(answer))), answer
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer ({type(error).__name__})") from None
    finally:
        connection.close()


def _outputs(answer: bytes, head: int) -> dict[str, bytes]:
    """The binary values of each output."""
    found, start = {}, head
    for output in json.loads(answer[:head]).get("outputs", []):
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = answer[start : start + size]
        start += size
    return found


def _of(tensor: Tensor, shape: Sequence[int], data: bytes) -> tuple[str, str, Sequence[int], bytes]:
    assert tensor.datatype == "BYTES" or len(data) == 4 * math.prod(shape)
    return tensor.name, tensor.datatype, shape, data


def _text(data: bytes) -> bytes:
    """One element of a BYTES tensor: its length, and it."""
    return struct.pack("<I", len(data)) + data
