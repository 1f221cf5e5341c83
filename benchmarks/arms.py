"""Servers under measurement: requests for the mask of a click, and readers of their answers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any

import numpy as np
import pybase64
from PIL import Image
from requests_toolbelt.multipart.decoder import MultipartDecoder
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from urllib3 import encode_multipart_formdata

from benchmarks.load import Connection, Request, Run
from benchmarks.objects import Mask, iou
from benchmarks.photo import CLICK, POINTS, photo
from benchmarks.service import ROOT, Server, Service, serving
from examples.bentoml_runner.predictor import REPOSITORY
from utils.triton import tensors

OURS, TRITON, SAME_ENGINE = "ours", "ours, straight to Triton", "ours, ONNX Runtime f32"
WITHOUT_TRITON, PLAIN_BENTOML, PLAIN_FASTAPI = "ours without Triton", "plain BentoML", "plain FastAPI"
MODULES = ROOT / "model_repository" / "mobile_sam" / "1"
JSON = {"Content-Type": "application/json"}
MIN_IOU = 0.95
"""IoU between the masks of two arms; engines and precisions differ in a few pixels."""

Point = tuple[int, int]


class Arm(ABC):
    """Server with its request and answer format."""

    refusal: bytes | None = None
    """Text in answers that report an error with status 200."""
    takes_image_ids = False
    """True if requests can name an image by its id."""

    def __init__(self, name: str, server: Server, port: int | None = None) -> None:
        self.name, self.server, self.port = name, server, port or server.port

    @abstractmethod
    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image, given as file or id."""

    @abstractmethod
    def read(self, body: bytes, headers: Message) -> Mask:
        """Return the mask in an answer, (H, W) bool."""

    def run(self, requests: Sequence[Request], concurrency: int = 1, due: Sequence[float] | None = None) -> Run:
        """Return a run of these requests."""
        return Run(self.port, requests, concurrency, due, self.refusal)


class Ours(Arm):
    """Service, or a server with the same HTTP contract."""

    takes_image_ids = True

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image, given as file or id."""
        return json_request(**image_fields(image), pos_coords=[point], mask_format="png", segmented_image="none")

    def read(self, body: bytes, headers: Message) -> Mask:
        """Return the mask in an answer, (H, W) bool."""
        return read_png(MultipartDecoder(body, headers["Content-Type"]).parts[0].content)


class Triton(Arm):
    """Triton of the service, called without BentoML."""

    takes_image_ids = True
    refusal = b'"slug"'

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image, given as file or id."""
        new = isinstance(image, bytes)
        values = {
            tensors.INPUT_IMAGE if new else tensors.IMAGE_ID: np.array([image], np.object_),
            tensors.POINT_COORDS: np.array([[point]], np.float32),
            tensors.POINT_LABELS: np.ones((1, 1), np.int32),
            tensors.MASK_FORMAT: np.array([b"png"], np.object_),
            tensors.SEGMENTED_IMAGE: np.array([b"none"], np.object_),
        }
        inputs = []
        for tensor, value in values.items():
            inputs.append(InferInput(tensor.name, list(value.shape), tensor.datatype))
            inputs[-1].set_data_from_numpy(value, binary_data=True)
        outputs = [InferRequestedOutput(tensor.name, binary_data=True) for tensor in tensors.SEGMENT_OUTPUTS]
        body, length = InferenceServerClient.generate_request_body(inputs, outputs=outputs)
        model = tensors.SEGMENT if new else tensors.SEGMENT_CACHED
        return Request(f"/v2/models/{model}/infer", {"Inference-Header-Content-Length": str(length)}, bytes(body))

    def read(self, body: bytes, headers: Message) -> Mask:
        """Return the mask in an answer, (H, W) bool."""
        length = int(headers["Inference-Header-Content-Length"])
        answer = InferenceServerClient.parse_response_body(body, header_length=length)
        return read_png(answer.as_numpy(tensors.MASK.name)[0])


class PlainBentoml(Arm):
    """BentoML's own descriptors: takes a form, returns nested lists."""

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image file."""
        assert isinstance(image, bytes)
        fields: dict[str, Any] = {"input_image": ("image.jpg", image, "image/jpeg"), "pos_coords": json.dumps([point])}
        body, content_type = encode_multipart_formdata(fields)
        return Request("/segment", {"Content-Type": content_type}, body)

    def read(self, body: bytes, headers: Message) -> Mask:  # noqa: ARG002
        """Return the mask in an answer, (H, W) bool."""
        return np.array(json.loads(body), bool)


class PlainFastapi(Arm):
    """Server that takes the service's request and returns only the mask."""

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image file."""
        return json_request(**image_fields(image), pos_coords=[point], mask_format="png")

    def read(self, body: bytes, headers: Message) -> Mask:  # noqa: ARG002
        """Return the mask in an answer, (H, W) bool."""
        return read_png(body)


def json_request(path: str = "/mobile_sam", **fields: Any) -> Request:
    """Return a JSON request."""
    return Request(path, JSON, json.dumps(fields).encode())


def image_fields(image: bytes | str) -> dict[str, str]:
    """Return the field with the image or its id."""
    return {"image_id": image} if isinstance(image, str) else {"input_image": pybase64.b64encode(image).decode()}


def read_png(data: bytes) -> Mask:
    """Return the mask in a PNG file, (H, W) bool."""
    mask: Mask = np.asarray(Image.open(io.BytesIO(data)).convert("L")) > 0
    return mask


def engines_of(service: Service, image: bytes) -> tuple[str, str]:
    """Return the engines of encoder and decoder, as named in the service's answer."""
    request = json_request(**image_fields(image), pos_coords=[CLICK], mask_format="rle", segmented_image="none")
    body, headers = Connection(service.port).ask(request)
    result = json.loads(MultipartDecoder(body, headers["Content-Type"]).parts[-1].content)
    engine = result.get("engine", {"encoder": "onnxruntime f32", "decoder": "onnxruntime f32"})
    return engine["encoder"], engine["decoder"]


@contextmanager
def all_arms(
    repository: Path, service: Service, same_engine: Service, engines: tuple[str, str]
) -> Iterator[dict[str, Arm]]:
    """Start the peers, check that all arms return the same masks, and yield the arms by name.

    Args:
        repository: the model repository.
        service: our service, on the engines of its choice.
        same_engine: our service, on the engine of the plain peers.
        engines: engines of encoder and decoder.
    """
    embeddings = ROOT / ".cache" / "benchmark-embeddings-without-triton"
    shutil.rmtree(embeddings, ignore_errors=True)
    environment = {
        REPOSITORY: str(repository),
        "BENCHMARK_ENCODER": engines[0],
        "BENCHMARK_DECODER": engines[1],
        "BENCHMARK_EMBEDDING_CACHE_DIR": str(embeddings),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(MODULES)]),
    }
    with contextlib.ExitStack() as stack:

        def start(name: str, *command: str) -> Server:
            return stack.enter_context(serving(name, command, environment))

        arms: list[Arm] = [
            Ours(OURS, service),
            Triton(TRITON, service, service.triton_port()),
            Ours(SAME_ENGINE, same_engine),
            Ours(WITHOUT_TRITON, start("without-triton", "bentoml", "serve", "benchmarks.peers.without_triton:svc")),
            PlainBentoml(PLAIN_BENTOML, start("bentoml", "bentoml", "serve", "examples.bentoml_runner.service:svc")),
            PlainFastapi(PLAIN_FASTAPI, start("fastapi", "uvicorn", "benchmarks.peers.plain_fastapi:app")),
        ]
        check_masks(arms)
        yield {arm.name: arm for arm in arms}


def check_masks(arms: Sequence[Arm]) -> None:
    """Compare the masks of all arms for each click of `POINTS`; for two clicks if an arm encodes the image every time.

    Raises:
        RuntimeError: an arm's mask differs from the first arm's.
    """
    expected: list[Mask] = []
    for arm in arms:
        found = [
            arm.read(*Connection(arm.port).ask(arm.click(photo(), point), arm.refusal))
            for point in (POINTS if arm.takes_image_ids else POINTS[:2])
        ]
        expected = expected or found
        same = [iou(mask, other) for mask, other in zip(found, expected, strict=False)]
        print(f"{arm.name}: {len(found)} masks, IoU with those of {arms[0].name} at least {min(same):.3f}")
        if min(same) < MIN_IOU:
            raise RuntimeError(f"{arm.name}: expected masks of IoU {MIN_IOU} or more, got {min(same):.3f}")
