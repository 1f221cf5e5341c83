"""Servers under measurement: their requests for the mask of a click, and readers of their
answers.
"""

import hashlib
import itertools
import json
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
import pybase64
from requests import Response
from requests_toolbelt.multipart.decoder import MultipartDecoder
from urllib3 import encode_multipart_formdata

from benchmarks.objects import Mask, iou, read_png
from benchmarks.photo import CLICK, NOISE_CLICK, POINTS, new, new_photo, noise, photo
from benchmarks.service import CACHE, running, serving
from examples.bentoml_runner.predictor import REPOSITORY
from harness import ROOT, Server
from harness.load import Request, closed_loop, json_request
from harness.server import cpu_seconds

OURS, SAME_ENGINE = "ours", "ours, ONNX Runtime f32"
WITHOUT_TRITON, PLAIN_BENTOML = "ours without Triton", "plain BentoML"
COLD, CACHED, MIXED = WORKLOADS = ("cold", "cached", "mixed")
"""Every click on a new image; every click on a known one; every fifth on a new one."""
FORM, LARGE = "cold, in a form", "cold, 3 MB of PNG"
"""Every click on a new image that is sent as a form, or that is large; otherwise images are
photographs in JSON."""
EVERYTHING, POINTS_PER_SIDE = "all masks", 16
"""All masks of a new image, by a grid of clicks."""
IN_ORDER = (*WORKLOADS, FORM, LARGE, EVERYTHING)
"""All workloads, in the order of the tables."""
NEW_OF_MIXED = 5
MIN_IOU = 0.98
"""Mean IoU between the masks of two arms; engines and precisions differ in a few pixels."""

Point = tuple[int, int]

_points = itertools.cycle(POINTS)


@dataclass
class Turn:
    """Result of one turn of an arm."""

    latencies: list[float]
    """Seconds, in the order of the answers."""
    seconds: float
    """Time from the first request to the last answer."""
    cpu_seconds: float = 0.0
    """CPU time of the server's processes, or of this process for the raw model."""


class Arm(Protocol):
    """One row of the tables: a server, or the raw model."""

    def turn(self, workload: str, callers: int, count: int, client: Executor) -> Turn:
        """Perform `count` requests of a workload."""


class ServerArm:
    """The service, or a server with the same HTTP contract."""

    takes_image_ids = True
    """True if requests can name an image by its id."""
    points_per_side = POINTS_PER_SIDE
    """Points along each side of the grid of `EVERYTHING`."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image, given as file or id."""
        return click_request(image, point, "png")

    def read(self, answer: Response) -> Mask:
        """Return the mask in an answer, (H, W) bool."""
        return read_png(MultipartDecoder.from_response(answer).parts[0].content)

    def masks(self, points: Sequence[Point]) -> list[Mask]:
        """Return the masks of clicks on `photo()`, each (H, W) bool."""
        answers = [self.server.send(self.click(photo(), point)) for point in points]
        for answer in answers:
            answer.raise_for_status()
        return [self.read(answer) for answer in answers]

    def requests_of(self, workload: str, count: int) -> list[Request]:
        """Return the requests of a workload; known images are named by their id if the server
        supports that.
        """
        if workload == EVERYTHING:
            grid = {"points_per_side": self.points_per_side}
            return [
                json_request(image_fields(new_photo()) | grid, "/everything") for _ in range(count)
            ]
        if workload == FORM:
            return [form_request(new_photo(), next(_points)) for _ in range(count)]
        if workload == LARGE:
            return [self.click(new(noise()), NOISE_CLICK) for _ in range(count)]
        known_image = hashlib.sha256(photo()).hexdigest() if self.takes_image_ids else photo()
        return [
            self.click(new_photo() if is_new(workload, index) else known_image, next(_points))
            for index in range(count)
        ]

    def turn(self, workload: str, callers: int, count: int, client: Executor) -> Turn:
        """Perform `count` requests of a workload.

        Raises:
            RuntimeError: the server returned an error, or encoded more or fewer images than were
                new.
        """
        requests = self.requests_of(workload, count)
        encoded, cpu = self._encoded(), cpu_seconds(self.server.family())
        answers = client.submit(closed_loop, self.server.port, requests, callers).result().all_ok()
        cpu = cpu_seconds(self.server.family()) - cpu
        if self.server.metrics_url:
            encoded = self._encoded() - encoded
            expected = sum(is_new(workload, index) for index in range(count))
            if encoded != expected:
                raise RuntimeError(
                    f"{workload}, {callers} callers: expected {expected} encoded images, got"
                    f" {encoded}"
                )
        began = min(answer.began for answer in answers)
        ended = max(answer.began + answer.seconds for answer in answers)
        return Turn([answer.seconds for answer in answers], ended - began, cpu)

    def _encoded(self) -> int:
        return self.server.embeddings()["encoded"] if self.server.metrics_url else 0


class PlainBentoml(ServerArm):
    """BentoML's own descriptors: takes a form, returns nested lists."""

    takes_image_ids = False

    def click(self, image: bytes | str, point: Point) -> Request:
        """Return the request for a click on an image file."""
        assert isinstance(image, bytes)
        fields: dict[str, Any] = {
            "input_image": ("image.jpg", image, "image/jpeg"),
            "pos_coords": json.dumps([point]),
        }
        body, content_type = encode_multipart_formdata(fields)
        return Request("/segment", body, {"Content-Type": content_type})

    def read(self, answer: Response) -> Mask:
        """Return the mask in an answer, (H, W) bool."""
        return np.array(answer.json(), bool)


PEER_SERVERS: dict[str, tuple[type[ServerArm], str]] = {
    WITHOUT_TRITON: (ServerArm, "bentoml serve benchmarks.peers.without_triton:svc"),
    PLAIN_BENTOML: (PlainBentoml, "bentoml serve examples.bentoml_runner.service:svc"),
}
"""Arms that are other servers, with their commands."""


def image_fields(image: bytes | str) -> dict[str, Any]:
    """Return the field with the image or its id."""
    return (
        {"image_id": image}
        if isinstance(image, str)
        else {"input_image": pybase64.b64encode(image).decode()}
    )


def click_request(image: bytes | str, point: Point, mask_format: str) -> Request:
    """Return the request for a click on an image, given as file or id, without a picture."""
    return json_request(image_fields(image) | click_fields(point, mask_format))


def form_request(image: bytes, point: Point) -> Request:
    """Return the same request as a form with the image's file."""
    parts: dict[str, Any] = {"image": ("image.jpg", image, "image/jpeg")}
    parts["request"] = json.dumps(click_fields(point, "png"))
    body, content_type = encode_multipart_formdata(parts)
    return Request("/mobile_sam", body, {"Content-Type": content_type})


def click_fields(point: Point, mask_format: str) -> dict[str, Any]:
    """Return the fields of a click, but the image."""
    return {"pos_coords": [point], "mask_format": mask_format, "segmented_image": "none"}


def engines_of(service: Server) -> tuple[str, str]:
    """Return the engines of encoder and decoder, as named in the service's answer."""
    answer = service.send(click_request(new_photo(), CLICK, "rle"))
    result = json.loads(MultipartDecoder.from_response(answer).parts[-1].content)
    return result["engine"]["encoder"], result["engine"]["decoder"]


def is_new(workload: str, index: int) -> bool:
    """Return whether the request at this index of a workload is on a new image."""
    return index % NEW_OF_MIXED == 0 if workload == MIXED else workload != CACHED


@contextmanager
def start_arms(
    names: Collection[str], repository: Path, service: Server, engines: tuple[str, str]
) -> Iterator[dict[str, ServerArm]]:
    """Start the named servers, check that all return the same masks, and yield them by name.

    Args:
        names: names of the arms to start, beside the service.
        repository: the model repository.
        service: the running service.
        engines: engines of encoder and decoder.
    """
    with ExitStack() as stack:
        environment = {
            REPOSITORY: str(repository),
            "BENCHMARK_ENCODER": engines[0],
            "BENCHMARK_DECODER": engines[1],
            "BENCHMARK_EMBEDDING_CACHE_DIR": stack.enter_context(TemporaryDirectory(dir=CACHE)),
            "PYTHONPATH": str(ROOT),
        }
        arms = {OURS: ServerArm(service)}
        if SAME_ENGINE in names:
            arms[SAME_ENGINE] = ServerArm(
                stack.enter_context(running(repository, engine="onnxruntime"))
            )
        for name, (kind, command) in PEER_SERVERS.items():
            if name in names:
                arms[name] = kind(stack.enter_context(serving(name, command.split(), environment)))
        print(compare_masks(arms))
        yield arms


def compare_masks(arms: Mapping[str, ServerArm]) -> str:
    """Compare the masks of clicks at `POINTS` with the first arm's; return the mean and least IoU
    of each other arm.

    Only two clicks are compared if an arm encodes the image every time.

    Raises:
        RuntimeError: the mean IoU is below `MIN_IOU`.
    """
    found = {
        name: arm.masks(POINTS if arm.takes_image_ids else POINTS[:2]) for name, arm in arms.items()
    }
    (first, expected), *others = found.items()
    texts = []
    for name, masks in others:
        ious = [iou(*pair) for pair in zip(masks, expected, strict=False)]
        if (mean := statistics.mean(ious)) < MIN_IOU:
            raise RuntimeError(
                f"{name}: expected masks of mean IoU {MIN_IOU} or more, got {mean:.4f}"
            )
        texts.append(f"{name} {mean:.3f} ({min(ious):.3f})")
    return f"Mean (least) IoU with the masks of {first}: {', '.join(texts)}."
