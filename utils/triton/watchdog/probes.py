"""Probe inferences of Triton's models, over HTTP and with the standard library only.

tritonclient would add 60 MB to the watchdog's process. The wire format is the binary tensor data extension of the v2
inference protocol.
"""

import base64
import functools
import hashlib
import http.client
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from utils.triton import tensors
from utils.triton.tensors import Tensor
from utils.triton.versions import DECODER, ENCODER

SERVER = "tritonserver"
REQUEST_ID = "probe"
"""Triton request id of probes: the orchestrator leaves these out of its metrics."""
FRAME_SIDE_PIXELS = 1024
"""Side of the encoder's square input."""
EMBEDDING_BYTES = 2 * 64 * 64 * 256
SUCCESS_SERIES = re.compile(r'^nv_inference_request_success\{model="([^"]+)",version="[^"]+"\} (\d+)', re.MULTILINE)
WORK_SERIES = re.compile(r'^mobile_sam_stage_seconds_total\{model="([^"]+)",[^}]*\} ([0-9.e+-]+)', re.MULTILINE)
ENGINE_LABEL = re.compile(r'\b(encoder|decoder)="([^"]+)"')

# A grey PNG of 8 x 8 pixels.
IMAGE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAEElEQVR4nGNsYIAAJgaKGAAmCACQXTClHgAAAABJRU5ErkJggg=="
)
POINT_XY = struct.pack("<2f", 4, 4)
POSITIVE = struct.pack("<i", 1)


class ProbeError(Exception):
    """Wrong answer to a probe."""


class NotLoadedError(ProbeError):
    """Probe of a model that is not loaded yet, or that an operator has unloaded."""


@dataclass(frozen=True)
class Probe:
    """Inference request that probes one model."""

    model: str
    inputs: Sequence[tuple[str, str, Sequence[int], bytes]]
    """Name, data type, shape and little-endian values of each input."""
    outputs: Sequence[str]


def probes() -> list[Probe]:
    """Return one probe for each model of the repository."""
    prompt = [
        _input(tensors.POINT_COORDS, (1, 1, 2), POINT_XY),
        _input(tensors.POINT_LABELS, (1, 1), POSITIVE),
    ]
    image = [_input(tensors.INPUT_IMAGE, (1,), _bytes_element(IMAGE)), _call({"mask_format": "rle"})]
    grid = [
        _input(tensors.INPUT_IMAGE, (1,), _bytes_element(IMAGE)),
        _input(tensors.GRID_COORDS, (1, 2), POINT_XY),
        _call({"crop_box": [0, 0, 8, 8], "stability_score_offset": 1, "min_mask_region_area": 0}),
    ]
    masks = [output.name for output in tensors.SEGMENT_OUTPUTS]
    records = [output.name for output in tensors.EVERYTHING_OUTPUTS]
    return [
        encoder_probe(bytes(3 * FRAME_SIDE_PIXELS**2)),
        decoder_probe(bytes(EMBEDDING_BYTES), "iou_predictions"),
        Probe(tensors.SEGMENT, [*image, *prompt], masks),
        Probe(tensors.SEGMENT_COSTLY, [*image, *prompt], masks),
        # It never knows the image if the embedding cache is off.
        Probe(tensors.SEGMENT_CACHED, [_call({"mask_format": "rle"}), *prompt], masks),
        Probe(tensors.EVERYTHING, grid, records),
    ]


def encoder_probe(frame: bytes) -> Probe:
    """Return a probe of the encoder with a frame, (1024, 1024, 3) uint8 RGB."""
    side = FRAME_SIDE_PIXELS
    inputs = [
        ("images", "UINT8", (1, side, side, 3), frame),
        ("sizes_hw", "INT32", (1, 2), struct.pack("<2i", side, side)),
    ]
    return Probe(ENCODER, inputs, ["image_embeddings"])


def decoder_probe(embedding: bytes, output: str) -> Probe:
    """Return a probe of the decoder: a click in the middle of a frame, with its embedding as the encoder returns it."""
    # With the padding point: the shapes of Triton's warm-up, for which the decoder always stays prepared.
    middle = FRAME_SIDE_PIXELS / 2
    inputs = [
        ("image_embeddings", "FP16", (1, 64, 64, 256), embedding),
        ("point_coords", "FP32", (1, 2, 2), struct.pack("<4f", middle, middle, 0, 0)),
        ("point_labels", "FP32", (1, 2), struct.pack("<2f", 1, -1)),
        ("mask_input", "FP32", (1, 1, 256, 256), bytes(256 * 256 * 4)),
        ("has_mask_input", "FP32", (1,), bytes(4)),
    ]
    return Probe(DECODER, inputs, [output])


def probe_calls(key_header: Mapping[str, str], *, models: bool) -> dict[str, Callable[[int, float], object]]:
    """Return the probe of each of MobileSAM's models, or only the probe of `SERVER` if other models are served.

    Each takes Triton's HTTP port and a socket timeout in seconds, and raises `ProbeError` or `OSError`.
    """
    if not models:
        return {SERVER: probe_server}
    return {probe.model: functools.partial(run_probe, probe, key_header) for probe in probes()}


def probe_server(port: int, timeout_s: float) -> None:
    """Check that the local Triton and all its models are ready.

    Raises:
        ProbeError: not ready.
        OSError: Triton cannot be reached, or timed out.
    """
    status, _, _ = _exchange(port, timeout_s, "/v2/health/ready")
    if status != 200:
        raise ProbeError("it is not ready")


def server_version(port: int, timeout_s: float) -> str:
    """Return Triton's version, such as 2.51.0; empty if it cannot be read."""
    try:
        return str(json.loads(_exchange(port, timeout_s, "/v2")[2])["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def is_ready(model: str, version: int, port: int, timeout_s: float) -> bool:
    """Return whether a model version accepts requests; False if Triton cannot be reached or times out."""
    try:
        return _exchange(port, timeout_s, f"/v2/models/{model}/versions/{version}/ready")[0] == 200
    except OSError:
        return False


def run_probe(
    probe: Probe, key_header: Mapping[str, str], port: int, timeout_s: float, version: int | None = None
) -> dict[str, bytes]:
    """Run a probe on the local Triton, by default with the model's newest version; return the outputs' values.

    Raises:
        ProbeError: the answer is an error or lacks an output.
        OSError: Triton cannot be reached, or timed out.
    """
    inputs = [
        {"name": name, "datatype": kind, "shape": list(shape), "parameters": {"binary_data_size": len(data)}}
        for name, kind, shape, data in probe.inputs
    ]
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in probe.outputs]
    head = json.dumps({"id": REQUEST_ID, "inputs": inputs, "outputs": outputs}).encode()
    body = b"".join([head, *(data for _, _, _, data in probe.inputs)])
    headers = {
        **key_header,
        "Inference-Header-Content-Length": str(len(head)),
        "Content-Type": "application/octet-stream",
    }
    path = f"/v2/models/{probe.model}" + (f"/versions/{version}" if version else "")
    status, length, answer = _exchange(port, timeout_s, f"{path}/infer", body, headers)
    if status != 200:
        if b"unknown model: '%s'" % probe.model.encode() in answer:
            raise NotLoadedError(f"{probe.model} is not loaded")
        raise ProbeError(f"{probe.model} answered {status}: {answer[:200].decode('utf-8', 'replace')}")
    try:
        values = _output_values(answer, length)
        outcome = values.get(tensors.OUTCOME.name, b"")[4:]
        problem = json.loads(outcome).get("problem") if outcome else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProbeError(f"{probe.model} sent an invalid response: {answer[:80]!r}") from None
    missing = [name for name in probe.outputs if not values.get(name)]
    if problem:
        raise ProbeError(f"{probe.model} answered {json.dumps(problem)[:200]}")
    if missing:
        raise ProbeError(f"{probe.model} answered without {', '.join(missing)}")
    return values


def read_engines(port: int, timeout_s: float) -> str:
    """Return the engines of encoder and decoder, from Triton's metrics; raise `OSError` as `read_counters`."""
    _, _, text = _exchange(port, timeout_s, "/metrics")
    return ", ".join(f"{part} {engine}" for part, engine in sorted(set(ENGINE_LABEL.findall(text.decode()))))


class ModelCounters(NamedTuple):
    """Counters of each model in Triton's metrics."""

    successes: Mapping[str, float]
    """Successful requests since the model was loaded."""
    work_s: Mapping[str, float]
    """Seconds spent on requests, running ones included; only of the orchestrator's models."""


def read_counters(port: int, timeout_s: float) -> ModelCounters:
    """Read Triton's metrics; raise `OSError` if Triton cannot be reached, or timed out."""
    _, _, text = _exchange(port, timeout_s, "/metrics")
    sums: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for totals, pattern in zip(sums, (SUCCESS_SERIES, WORK_SERIES), strict=True):
        for model, value in pattern.findall(text.decode()):
            totals[model] = totals.get(model, 0.0) + float(value)  # over versions and stages
    return ModelCounters(*sums)


def _exchange(
    port: int, timeout_s: float, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, int, bytes]:
    """Return a response's status, the length of the JSON before its binary values, and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        response = connection.getresponse()
        answer = response.read()
        return response.status, int(response.headers.get("Inference-Header-Content-Length", len(answer))), answer
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer ({type(error).__name__})") from None
    finally:
        connection.close()


def _output_values(answer: bytes, json_bytes: int) -> dict[str, bytes]:
    """Return the binary values of each output."""
    values, start = {}, json_bytes
    for output in json.loads(answer[:json_bytes]).get("outputs", []):
        size = output["parameters"]["binary_data_size"]
        values[output["name"]] = answer[start : start + size]
        start += size
    return values


def _input(tensor: Tensor, shape: Sequence[int], data: bytes) -> tuple[str, str, Sequence[int], bytes]:
    assert tensor.datatype == "BYTES" or len(data) == 4 * math.prod(shape)
    return tensor.name, tensor.datatype, shape, data


def _call(options: Mapping[str, Any]) -> tuple[str, str, Sequence[int], bytes]:
    """Return the input that describes a call with the probes' image."""
    call = {"image_id": hashlib.sha256(IMAGE).hexdigest(), "options": options}
    return _input(tensors.CALL, (1,), _bytes_element(json.dumps(call).encode()))


def _bytes_element(data: bytes) -> bytes:
    """Return one element of a BYTES tensor: a length prefix and the data."""
    return struct.pack("<I", len(data)) + data
