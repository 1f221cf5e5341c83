"""Lists of images at `/embed`, and their jobs."""

import asyncio
import base64

import pytest

from utils.background.queue import EncodeQueue
from utils.inference.request import ImageSource
from utils.observability.context import KEY_NAME

EMBEDDING_BYTES = 2 * 2**20
FILES = [b"\xff\xd8 one", b"\xff\xd8 two"]
TEXTS = [base64.b64encode(file).decode() for file in FILES]


@pytest.fixture(autouse=True)
def queue(service, monkeypatch, tmp_path) -> EncodeQueue:
    queue = EncodeQueue(tmp_path / "queue.sqlite3", 8 * EMBEDDING_BYTES, EMBEDDING_BYTES)
    monkeypatch.setattr(service.app.background, "_queue", queue)

    async def loaded() -> list[int]:
        return [3]

    monkeypatch.setattr(service.app.background, "_versions", loaded)
    return queue


@pytest.mark.parametrize(
    "request_with",
    [
        pytest.param({"json": {"images": TEXTS, "model_version": 3}}, id="json"),
        pytest.param(
            {
                "files": [("image", ("a.jpg", FILES[0])), ("image", FILES[1])],
                "data": {"request": '{"model_version": 3}'},
            },
            id="form",
        ),
    ],
)
def test_files_are_kept_and_queued(http, segmenter, queue, request_with):
    answer = http.post("/embed", **request_with)
    assert (answer.status_code, answer.headers["cache-control"]) == (202, "no-store")
    assert [source.file for source in segmenter.stored] == FILES
    job = answer.json()
    assert [image["image_id"] for image in job["images"]] == [
        source.image_id for source in segmenter.stored
    ]
    assert (job["queued"], not segmenter.embeds) == (2, True)
    assert http.get(f"/embed/{job['job']}").json() == job
    assert queue.begin("")["model_version"] == 3
    cancelled = http.request("DELETE", f"/embed/{job['job']}")
    assert (cancelled.status_code, cancelled.json()["cancelled"]) == (200, 2)


def test_list_for_a_version_that_is_not_loaded_is_a_422_and_nothing_is_queued(
    http, segmenter, queue
):
    answer = http.post("/embed", json={"images": TEXTS, "model_version": 99})
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["field"], error["got"]) == (422, "model_version", "99")
    assert not segmenter.calls
    assert queue.begin("") is None


def test_known_images_are_queued_by_their_ids(http, segmenter):
    job = http.post("/embed", json={"image_ids": ["an id", "another"]}).json()
    assert [image["image_id"] for image in job["images"]] == ["an id", "another"]
    assert not segmenter.calls


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_job_of_another_key_is_a_404(http, service, method):
    job = asyncio.run(_queued_by("alice", service))
    answer = http.request(method, f"/embed/{job}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:mobile-sam:not-found")


async def _queued_by(owner: str, service) -> str:
    KEY_NAME.set(owner)
    return str((await service.app.background.add([ImageSource(None, "an id", owner)]))["job"])


@pytest.mark.parametrize(
    ("fields", "field", "got"),
    [
        ({"images": []}, "images", "a list of 0"),
        (
            {"images": ["no base64!"]},
            "images[0]",
            "10 characters that are not base64: 'no base64!'...",
        ),
        ({"images": [TEXTS[0], ""]}, "images[1]", "an empty string"),
        ({"images": TEXTS, "image_ids": ["an id"]}, "images", "several"),
        ({"images": TEXTS, "image_id": "an id"}, "images", "several"),
        ({"image_ids": ["x" * 129]}, "image_ids[0]", f"'{'x' * 79}... (129 characters)"),
        ({"image_ids": ["an id"], "region": [0, 0, 64, 64]}, "region", "several"),
        ({"image_ids": ["an id"] * 257}, "image_ids", "a list of 257"),
    ],
)
def test_bad_list_is_a_422_that_names_the_field(http, segmenter, fields, field, got):
    answer = http.post("/embed", json=fields)
    assert answer.status_code == 422
    assert [(error["field"], error["got"]) for error in answer.json()["errors"]] == [(field, got)]
    assert not segmenter.calls


def test_lists_are_for_embed_only(http):
    for path in ("/mobile_sam", "/everything"):
        assert http.post(path, json={"images": TEXTS, "pos_coords": [[1, 2]]}).status_code == 422


def test_list_above_the_limits_says_what_fits(http):
    answer = http.post("/embed", json={"image_ids": ["an id"] * 7})
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:mobile-sam:queue-too-large")
    assert (
        "expected images for 12 MiB of the embedding cache, got 14 MiB" in answer.json()["detail"]
    )
    http.post("/embed", json={"image_ids": ["an id"] * 5})
    answer = http.post("/embed", json={"image_ids": ["an id"] * 2})
    assert (answer.status_code, answer.json()["type"]) == (429, "urn:mobile-sam:queue-full")
    assert answer.headers["retry-after"] == "5"
    assert "share is 12 MiB, this one has 10 MiB" in answer.json()["detail"]


def test_unknown_job_and_wrong_method_are_refused(http):
    assert http.get("/embed/nothing").status_code == 404
    answer = http.post("/embed/nothing")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, DELETE")
