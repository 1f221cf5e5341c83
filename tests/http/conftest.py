"""BentoML's real application in this process, with a fake segmenter."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from utils.api.images import ImageSource
from utils.triton.health import Health
from utils.triton.segmenter import GridBatch, Job, Segmentation


class FakeSegmenter:
    """Segmenter that records its calls, and answers with fixed parts or raises."""

    def __init__(self) -> None:
        self.embeds: list[ImageSource] = []
        self.jobs: list[tuple[ImageSource, Job]] = []
        self.batches: list[tuple[ImageSource, GridBatch]] = []
        self.error: Exception | None = None
        self.checked_bodies: list[bytes] = []
        """Arguments of `check_room`."""
        self.room_error: Exception | None = None
        self.batch_errors: list[Exception | None] = []
        """Errors of the next batches."""

    @property
    def calls(self) -> list:
        """Arguments of all calls."""
        return [*self.embeds, *self.jobs, *self.batches]

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        self.embeds.append(image)
        if self.error:
            raise self.error
        document = {"image_id": "the id", "width": 40, "height": 30, "weights": {"name": "none"}, "model_version": 4}
        return json.dumps(document).encode()

    def check_room(self, body: bytes) -> None:
        self.checked_bodies.append(body)
        if self.room_error:
            raise self.room_error

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        self.jobs.append((image, job))
        if self.error:
            raise self.error
        picture = None if job.options.segmented_image == "none" else b"the picture"
        return Segmentation(b"the mask", picture, b'{"masks": []}')

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        self.batches.append((image, batch))
        if self.batch_errors and (error := self.batch_errors.pop(0)):
            raise error
        side = len(self.batches)  # the masks of all batches differ
        return [
            {
                "area": side * side,
                "bbox": [0, 0, side, side],
                "predicted_iou": 0.9,
                "crop_box": [0, 0, 40, 30],
                "box": [10 * side, 0, 10 * side + side, side],
                "tidied": False,
                "segmentation": {"size": [30, 40], "counts": "counts"},
            }
        ]


class Http:
    """Requests to an ASGI application in this process."""

    def __init__(self, app) -> None:
        self.app = app

    def request(self, method: str, path: str, **options) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, **options) -> httpx.Response:
        return self.request("POST", path, **options)


@pytest.fixture(scope="session")
def service():
    import service

    return service


@pytest.fixture
def segmenter(service, monkeypatch) -> FakeSegmenter:
    fake = FakeSegmenter()
    monkeypatch.setattr(service.app, "segmenter", fake)
    return fake


@pytest.fixture(scope="session")
def bento_app(service):
    """BentoML's application, created once: a second one would register its metrics again."""
    return service.svc.asgi_app


@pytest.fixture
def app(bento_app, monkeypatch):
    """The application with a ready Triton and a fresh refusal log."""
    monkeypatch.setattr("utils.triton.health.read_health", lambda _: Health("ready"))
    monkeypatch.setattr("utils.api.answers.REFUSAL_LOG._windows", {})
    return bento_app


@pytest.fixture
def http(app, segmenter) -> Http:
    """HTTP access to the whole application: edge, routing, API."""
    return Http(app)
