"""Servers under measurement: their requests for the mask of a click, and readers of their answers."""

import contextlib
import hashlib
import io
import itertools
import json
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pybase64
from PIL import Image
from requests_toolbelt.multipart.decoder import MultipartDecoder
from urllib3 import encode_multipart_formdata

from benchmarks.load import Connection, Outcome, Request, Run, perform
from benchmarks.objects import Mask, iou
from benchmarks.photo import CLICK, POINTS, photo, unseen
from benchmarks.service import ROOT, Server, Service, running, serving
from examples.bentoml_runner.predictor import REPOSITORY

OURS, SAME_ENGINE = "ours", "ours, ONNX Runtime f32"
WITHOUT_TRITON, PLAIN_BENTOML, PLAIN_FASTAPI = "ours without Triton", "plain BentoML", "plain FastAPI"
COLD, CACHED, MIXED = WORKLOADS = ("cold", "cached", "mixed")
"""Every click on a new image; every click on a known one; every fifth on a new one."""
ENCODE = "encode"
"""Additional workload of the raw model: the encoder alone."""
NEW_OF_MIXED = 5
MIN_IOU = 0.95
"""IoU between the masks of two arms; engines and precisions differ in a few pixels."""

Point = tuple[int, int]

_numbers = itertools.count(time.time_ns())  # new images also differ from earlier runs' images, which a cache may hold
_points = itertools.cycle(POINTS)


class Arm(Protocol):
    """One row of the tables: a server, or the raw model."""

    def turn(self, workload: str, callers: int, count: int, client: Executor) -> Outcome:
        """Perform `count` requests of a workload."""


class ServerArm(ABC):
    """Server with its request and answer format."""

    takes_image_ids = False
    """True if requests can name an image by its id."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @abstractmethod
    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image, given as file or id."""

    @abstractmethod
    def read(self, body: bytes, headers: Message) -> Mask:
        """Return the mask in an answer, (H, W) bool."""

    def masks(self, points: Sequence[Point]) -> list[Mask]:
        """Return the masks of clicks on `photo()`, each (H, W) bool."""
        connection = Connection(self.server.port)
        return [self.read(*connection.ask(self.click(photo(), point))) for point in points]

    def clicks(self, workload: str, count: int) -> list[Request]:
        """Return the requests of a workload; known images are named by their id if the server supports that."""
        known = hashlib.sha256(photo()).hexdigest() if self.takes_image_ids else photo()
        return [self.click(new_photo() if is_new(workload, index) else known, next(_points)) for index in range(count)]

    def turn(
        self, workload: str, callers: int, count: int, client: Executor, due: Sequence[float] | None = None
    ) -> Outcome:
        """Perform `count` requests of a workload, at the times `due` if those are given.

        Raises:
            LoadError: the server returned an error.
            RuntimeError: the service encoded more or fewer images than were new.
        """
        run = Run(self.server.port, self.clicks(workload, count), callers, due)
        encoded, cpu = self._encoded(), self.server.cpu_seconds()
        outcome = client.submit(perform, run).result()
        outcome.cpu_seconds = self.server.cpu_seconds() - cpu
        if isinstance(self.server, Service):
            found, expected = self._encoded() - encoded, sum(is_new(workload, index) for index in range(count))
            if found != expected:
                raise RuntimeError(f"{workload}, {callers} callers: expected {expected} encoded images, got {found}")
        return outcome

    def _encoded(self) -> int:
        return self.server.embeddings()["encoded"] if isinstance(self.server, Service) else 0


class Ours(ServerArm):
    """Service, or a server with the same HTTP contract."""

    takes_image_ids = True

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image, given as file or id."""
        return json_request(**image_fields(image), pos_coords=[point], mask_format="png", segmented_image="none")

    def read(self, body: bytes, headers: Message) -> Mask:
        """Return the mask in an answer, (H, W) bool."""
        return read_png(MultipartDecoder(body, headers["Content-Type"]).parts[0].content)


class PlainBentoml(ServerArm):
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


class PlainFastapi(Ours):
    """Server that takes the service's request and returns only the mask."""

    takes_image_ids = False

    def read(self, body: bytes, headers: Message) -> Mask:  # noqa: ARG002
        """Return the mask in an answer, (H, W) bool."""
        return read_png(body)


PEER_SERVERS: dict[str, tuple[type[ServerArm], str]] = {
    WITHOUT_TRITON: (Ours, "bentoml serve benchmarks.peers.without_triton:svc"),
    PLAIN_BENTOML: (PlainBentoml, "bentoml serve examples.bentoml_runner.service:svc"),
    PLAIN_FASTAPI: (PlainFastapi, "uvicorn benchmarks.peers.plain_fastapi:app"),
}
"""Arms that are servers of their own, with their commands."""


def json_request(path: str = "/mobile_sam", **fields: Any) -> Request:
    """Return a JSON request."""
    return Request(path, {"Content-Type": "application/json"}, json.dumps(fields).encode())


def image_fields(image: bytes | str) -> dict[str, str]:
    """Return the field with the image or its id."""
    return {"image_id": image} if isinstance(image, str) else {"input_image": pybase64.b64encode(image).decode()}


def read_png(data: bytes) -> Mask:
    """Return the mask in a PNG file, (H, W) bool."""
    mask: Mask = np.asarray(Image.open(io.BytesIO(data)).convert("L")) > 0
    return mask


def engines_of(service: Service) -> tuple[str, str]:
    """Return the engines of encoder and decoder, as named in the service's answer."""
    request = json_request(**image_fields(new_photo()), pos_coords=[CLICK], mask_format="rle", segmented_image="none")
    body, headers = Connection(service.port).ask(request)
    result = json.loads(MultipartDecoder(body, headers["Content-Type"]).parts[-1].content)
    return result["engine"]["encoder"], result["engine"]["decoder"]


def is_new(workload: str, index: int) -> bool:
    """Return whether the request at this index of a workload is on a new image."""
    return workload == COLD or (workload == MIXED and index % NEW_OF_MIXED == 0)


def new_photo() -> bytes:
    """Return `photo()` as a file that no server has seen."""
    return unseen(photo(), next(_numbers))


@contextmanager
def start_arms(
    names: Collection[str], repository: Path, service: Service, engines: tuple[str, str]
) -> Iterator[dict[str, ServerArm]]:
    """Start the named servers, check that all return the same masks, and yield them by name.

    Args:
        names: names of the arms to start.
        repository: the model repository.
        service: the running service.
        engines: engines of encoder and decoder.
    """
    embeddings = ROOT / ".cache" / "benchmark-embeddings-without-triton"
    shutil.rmtree(embeddings, ignore_errors=True)
    environment = {
        REPOSITORY: str(repository),
        "BENCHMARK_ENCODER": engines[0],
        "BENCHMARK_DECODER": engines[1],
        "BENCHMARK_EMBEDDING_CACHE_DIR": str(embeddings),
        "PYTHONPATH": str(ROOT),
    }
    with contextlib.ExitStack() as stack:
        arms: dict[str, ServerArm] = {}
        if OURS in names:
            arms[OURS] = Ours(service)
        if SAME_ENGINE in names:
            arms[SAME_ENGINE] = Ours(stack.enter_context(running(repository, engine="onnxruntime")))
        for name, (kind, command) in PEER_SERVERS.items():
            if name in names:
                log = name.replace(" ", "-")
                arms[name] = kind(stack.enter_context(serving(log, command.split(), environment)))
        check_masks(arms)
        yield arms


def check_masks(arms: Mapping[str, ServerArm]) -> None:
    """Compare the masks of all arms for each click of `POINTS`; for two clicks if an arm encodes the image every time.

    Raises:
        RuntimeError: an arm's mask differs from the first arm's.
    """
    expected: list[Mask] = []
    for name, arm in arms.items():
        found = arm.masks(POINTS if arm.takes_image_ids else POINTS[:2])
        expected = expected or found
        same = min(iou(mask, other) for mask, other in zip(found, expected, strict=False))
        print(f"{name}: {len(found)} masks, IoU with the first arm's at least {same:.3f}")
        if same < MIN_IOU:
            raise RuntimeError(f"{name}: expected masks of IoU {MIN_IOU} or more, got {same:.3f}")
