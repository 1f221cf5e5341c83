"""The servers that are measured: how each is asked for a click's mask, and how its answer is read."""

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
from utils import tensors

OURS, TRITON, SAME_ENGINE = "ours", "ours, straight to Triton", "ours, ONNX Runtime f32"
WITHOUT_TRITON, PLAIN_BENTOML, PLAIN_FASTAPI = "ours without Triton", "plain BentoML", "plain FastAPI"
MODULES = ROOT / "model_repository" / "mobile_sam" / "1"
JSON = {"Content-Type": "application/json"}
LEAST_IOU = 0.95
"""Of any two arms' masks; engines and precisions differ in a few pixels."""

Point = tuple[int, int]


class Arm(ABC):
    """A server with its way of asking."""

    refusal: bytes | None = None
    """What stands in an answer that refuses with status 200."""
    remembers = False
    """Whether an image can be named by its id."""

    def __init__(self, name: str, server: Server, port: int | None = None) -> None:
        self.name, self.server, self.port = name, server, port or server.port

    @abstractmethod
    def click(self, image: bytes | str, point: Point) -> Request:
        """A click on an image: its file, or its id."""

    @abstractmethod
    def read(self, body: bytes, headers: Message) -> Mask:
        """The mask in an answer, (H, W) bool."""

    def run(self, requests: Sequence[Request], concurrency: int = 1, due: Sequence[float] | None = None) -> Run:
        """A run of these requests."""
        return Run(self.port, requests, concurrency, due, self.refusal)


class Ours(Arm):
    """The service, and what has its HTTP contract."""

    remembers = True

    def click(self, image: bytes | str, point: Point) -> Request:
        """A click on an image: its file, or its id."""
        return json_request(**image_fields(image), pos_coords=[point], mask_format="png", segmented_image="none")

    def read(self, body: bytes, headers: Message) -> Mask:
        """The mask in an answer, (H, W) bool."""
        return read_png(MultipartDecoder(body, headers["Content-Type"]).parts[0].content)


class Triton(Arm):
    """The service's Triton, without BentoML before it."""

    remembers = True
    refusal = b'"slug"'

    def click(self, image: bytes | str, point: Point) -> Request:
        """A click on an image: its file, or its id."""
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
        """The mask in an answer, (H, W) bool."""
        length = int(headers["Inference-Header-Content-Length"])
        answer = InferenceServerClient.parse_response_body(body, header_length=length)
        return read_png(answer.as_numpy(tensors.MASK.name)[0])


class PlainBentoml(Arm):
    """BentoML's own descriptors: a form in, nested lists out."""

    def click(self, image: bytes | str, point: Point) -> Request:
        """A click on an image's file."""
        assert isinstance(image, bytes)
        fields: dict[str, Any] = {"input_image": ("image.jpg", image, "image/jpeg"), "pos_coords": json.dumps([point])}
        body, content_type = encode_multipart_formdata(fields)
        return Request("/segment", {"Content-Type": content_type}, body)

    def read(self, body: bytes, headers: Message) -> Mask:  # noqa: ARG002
        """The mask in an answer, (H, W) bool."""
        return np.array(json.loads(body), bool)


class PlainFastapi(Arm):
    """The service's request, answered with nothing but the mask."""

    def click(self, image: bytes | str, point: Point) -> Request:
        """A click on an image's file."""
        return json_request(**image_fields(image), pos_coords=[point], mask_format="png")

    def read(self, body: bytes, headers: Message) -> Mask:  # noqa: ARG002
        """The mask in an answer, (H, W) bool."""
        return read_png(body)


def json_request(path: str = "/mobile_sam", **fields: Any) -> Request:
    """A request of JSON."""
    return Request(path, JSON, json.dumps(fields).encode())


def image_fields(image: bytes | str) -> dict[str, str]:
    """The field that names an image, or holds it."""
    return {"image_id": image} if isinstance(image, str) else {"input_image": pybase64.b64encode(image).decode()}


def read_png(data: bytes) -> Mask:
    """A mask of a PNG file, (H, W) bool."""
    mask: Mask = np.asarray(Image.open(io.BytesIO(data)).convert("L")) > 0
    return mask


def engines_of(service: Service, image: bytes) -> tuple[str, str]:
    """The engines of encoder and decoder that an answer of the service names."""
    request = json_request(**image_fields(image), pos_coords=[CLICK], mask_format="rle", segmented_image="none")
    body, headers = Connection(service.port).ask(request)
    result = json.loads(MultipartDecoder(body, headers["Content-Type"]).parts[-1].content)
    engine = result.get("engine", {"encoder": "onnxruntime f32", "decoder": "onnxruntime f32"})
    return engine["encoder"], engine["decoder"]


@contextmanager
def all_arms(
    repository: Path, service: Service, same_engine: Service, engines: tuple[str, str]
) -> Iterator[dict[str, Arm]]:
    """The service's arms, and its peers, started, by name; each has given the same mask.

    Args:
        repository: the model repository.
        service: ours, running as it chooses.
        same_engine: ours, running on the engine of the plain peers.
        engines: of encoder and decoder.
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
    """Compare the masks of all arms, of each click of `POINTS`; of two where each click takes as long as a new image.

    Raises:
        RuntimeError: an arm's mask differs from the first arm's.
    """
    expected: list[Mask] = []
    for arm in arms:
        found = [
            arm.read(*Connection(arm.port).ask(arm.click(photo(), point), arm.refusal))
            for point in (POINTS if arm.remembers else POINTS[:2])
        ]
        expected = expected or found
        same = [iou(mask, other) for mask, other in zip(found, expected, strict=False)]
        print(f"{arm.name}: {len(found)} masks, IoU with those of {arms[0].name} at least {min(same):.3f}")
        if min(same) < LEAST_IOU:
            raise RuntimeError(f"{arm.name}: expected masks of IoU {LEAST_IOU} or more, got {min(same):.3f}")
