"""Images encoded in the background, with both clients."""

import asyncio
import base64
import hashlib
import json
from typing import Any

import httpx
import pytest

from mobile_sam_client import (
    AsyncClient,
    Client,
    ImageNotCached,
    MobileSamError,
    Unauthorized,
    _background,
)
from tests.unit.client.mobile_sam_client import fake_service as fake


class FakeQueue:
    """A service whose jobs are asked for once before they are done."""

    def __init__(self) -> None:
        self.jobs: dict[str, list[dict[str, Any]]] = {}
        self.files: list[bytes] = []
        self.cancelled: list[str] = []
        self.failing: dict[bytes, Any] = {}
        """Replies to files, which are used once."""

    def __call__(self, request: httpx.Request) -> Any:
        path, image_id = request.url.path, request.headers["X-Image-Id"]
        if path == "/embed":
            assert image_id == fake.named_image(request)
            (text,) = json.loads(request.content)["images"]
            file = base64.b64decode(text)
            if file in self.failing:
                return self.failing.pop(file)(request)
            self.files.append(file)
            job = f"job-{len(self.files)}"
            image = {"image_id": image_id}
            self.jobs[job] = [{**image, "state": "queued"}, {**image, "state": "done"}]
            return fake.make_reply(json.dumps({"job": job}).encode(), status=202)(request)
        job = path.removeprefix("/embed/")
        if request.method == "DELETE":
            self.cancelled.append(job)
        if job not in self.jobs:
            return fake.problem_reply(404, "not-found")(request)
        states = self.jobs[job]
        assert image_id == states[0].get("image_id", image_id)
        return fake.json_reply({"images": [states.pop(0) if len(states) > 1 else states[0]]})(
            request
        )


@pytest.fixture
def queue() -> FakeQueue:
    return FakeQueue()


def found(
    kind: type[Client] | type[AsyncClient], handler: fake.Reply, images: Any, **options: Any
) -> list[Any]:
    """Return all results of `embed_ahead`."""
    client = kind(fake.URL, transport=httpx.MockTransport(handler))
    if isinstance(client, Client):
        return list(client.embed_ahead(images, **options))

    async def collect() -> list[Any]:
        return [each async for each in client.embed_ahead(images, **options)]

    return asyncio.run(collect())


def image_id(file: bytes) -> str:
    return hashlib.sha256(file).hexdigest()


def test_each_image_has_its_id_and_few_are_queued_at_a_time(kind, queue, monkeypatch):
    monkeypatch.setattr(_background, "MAX_QUEUED", 2)
    files = [b"a", b"b", b"c", b"d"]
    assert found(kind, queue, files) == [(file, image_id(file)) for file in files]
    assert (queue.files, queue.cancelled) == (files, [])


def test_paths_are_read_and_those_without_a_file_have_their_error(kind, queue, tmp_path):
    (tmp_path / "a.png").write_bytes(b"a")
    paths = [tmp_path / name for name in ("a.png", "b.png")]
    results = dict(found(kind, queue, paths))
    assert results[paths[0]] == image_id(b"a")
    assert isinstance(results[paths[1]], FileNotFoundError)


def test_images_are_what_load_returns(kind, queue):
    def load(name: str) -> bytes:
        if name == "bad":
            raise RuntimeError("it cannot be loaded")
        return name.encode()

    (bad, error), good = found(kind, queue, ["bad", "good"], load=load)
    assert (bad, str(error)) == ("bad", "it cannot be loaded")
    assert good == ("good", image_id(b"good"))


def test_awaitable_of_load_is_awaited(queue):
    async def load(name: str) -> bytes:
        return name.encode()

    assert found(AsyncClient, queue, ["a"], load=load) == [("a", image_id(b"a"))]


def test_unusable_image_has_its_error_and_the_others_their_ids(kind, queue):
    queue.failing[b"bad"] = fake.problem_reply(413, "body-too-large")
    failed = {
        "state": "failed",
        "problem": {"type": "urn:mobile-sam:image-not-cached", "status": 404, "detail": "evicted"},
    }

    def handler(request: httpx.Request) -> Any:
        answer = queue(request)
        queue.jobs.update({"job-2": [failed]} if "job-2" in queue.jobs else {})
        return answer

    results = dict(found(kind, handler, [b"bad", b"a", b"evicted", b"b"]))
    assert [type(results[image]).__name__ for image in (b"bad", b"a", b"b")] == [
        "BodyTooLarge",
        "str",
        "str",
    ]
    assert isinstance(results[b"evicted"], ImageNotCached)


def test_cancelled_image_has_an_error(kind, queue):
    def handler(request: httpx.Request) -> Any:
        answer = queue(request)
        queue.jobs.update({"job-1": [{"state": "cancelled"}]})
        return answer

    ((_, error),) = found(kind, handler, [b"a"])
    assert isinstance(error, MobileSamError)
    assert "taken out of the queue" in str(error)


@pytest.mark.parametrize("status", [429, 503])
def test_full_queue_and_restarting_service_are_asked_again(kind, queue, waits, status):
    replies = [fake.problem_reply(status, Retry_After="5")] * 8

    def handler(request: httpx.Request) -> Any:
        return replies.pop()(request) if replies and request.url.path != "/info" else queue(request)

    assert found(kind, handler, [b"a"]) == [(b"a", image_id(b"a"))]
    assert waits.count(5) == 7


def test_image_is_sent_again_if_its_job_is_lost(kind, queue):
    def handler(request: httpx.Request) -> Any:
        answer = queue(request)
        queue.jobs.pop("job-1", None)
        return answer

    assert found(kind, handler, [b"a"]) == [(b"a", image_id(b"a"))]
    assert queue.files == [b"a", b"a"]


def test_queued_images_are_cancelled_when_the_iteration_ends_early_or_fails(queue, monkeypatch):
    monkeypatch.setattr(_background, "MAX_QUEUED", 2)
    client = Client(fake.URL, transport=httpx.MockTransport(queue))
    results = client.embed_ahead([b"a", b"b", b"c"])
    assert next(results)[0] == b"a"
    results.close()
    assert queue.cancelled == ["job-1", "job-2"]
    queue.failing[b"e"] = fake.problem_reply(401, "unauthorized")
    with pytest.raises(Unauthorized):
        list(client.embed_ahead([b"d", b"e"]))
    assert queue.cancelled[2:] == ["job-3"]


def test_later_calls_send_the_id_only(queue):
    sent = []

    def handler(request: httpx.Request) -> Any:
        if request.url.path == "/mobile_sam":
            sent.append(json.loads(request.content)["image_id"])
            return fake.default_reply(request)
        return queue(request)

    client = Client(fake.URL, transport=httpx.MockTransport(handler))
    list(client.embed_ahead([b"a"]))
    client.segment(b"a", pos_coords=(1, 2))
    assert sent == [image_id(b"a")]
