"""BentoML's real application in this process, with a fake segmenter."""

from typing import Any

import pytest

from tests.fake_segmenter import FakeSegmenter
from tests.http.asgi import Http
from utils.triton.health import Health, write_health
from utils.triton.run import RunState


@pytest.fixture(scope="session")
def service():
    import service

    return service


@pytest.fixture(scope="session")
def triton_segmenter(service):
    """The service's own segmenter, of which the edge asks whether there is room."""
    return service.app.segmenter


@pytest.fixture
def segmenter(triton_segmenter, monkeypatch) -> FakeSegmenter:
    """What answers in place of the service's own segmenter."""
    fake = FakeSegmenter()

    def answer_by_fake(method: str) -> None:
        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(fake, method)(*arguments, **options)

        monkeypatch.setattr(triton_segmenter, method, call)

    for method in ("embed", "segment", "records"):
        answer_by_fake(method)
    monkeypatch.setattr(triton_segmenter, "parallel_batches", fake.parallel_batches)
    monkeypatch.setattr(triton_segmenter, "batch_points", fake.batch_points)
    return fake


@pytest.fixture(scope="session")
def bento_app(service):
    """BentoML's application, created once: a second one would register its metrics again."""
    return service.svc.asgi_app


@pytest.fixture
def app(bento_app, monkeypatch):
    """The application with a ready Triton and a fresh refusal log."""
    write_health(RunState.current().health_file, Health("ready"))
    monkeypatch.setattr("utils.api.answers.REFUSAL_LOG._windows", {})
    monkeypatch.setattr("utils.api.answers.ERROR_LOG._windows", {})
    return bento_app


@pytest.fixture
def http(app, segmenter) -> Http:
    """HTTP access to the whole application: edge, routing, API."""
    return Http(app)
