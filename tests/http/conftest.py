"""BentoML's real application in this process, with a stand-in for Triton."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from utils.segmenter import Job, Segmentation


class FakeSegmenter:
    """Keeps the jobs; answers with fixed parts, or raises."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.error: Exception | None = None

    async def segment(self, job: Job) -> Segmentation:
        self.jobs.append(job)
        if self.error:
            raise self.error
        return Segmentation(b"the mask", None if job.picture_style == "none" else b"the picture", b'{"masks": []}')


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
    monkeypatch.setattr(service, "segmenter", fake)
    return fake


@pytest.fixture(scope="session")
def app(service):
    """BentoML's application; a second one in this process would register its metrics twice."""
    return service.svc.asgi_app


@pytest.fixture
def http(app, segmenter) -> Http:
    """The whole application: edge, routing, API."""
    return Http(app)
