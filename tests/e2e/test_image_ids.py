"""Image ids: one encode per image, also across restarts, and the response once an image has been evicted."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mobile_sam_client import Client, Embedding
from tests.e2e.answers import parts, problem, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, serving, start_server

pytestmark = pytest.mark.e2e

NPY_ONLY: dict[str, Any] = {"mask_format": "npy", "segmented_image": "none"}
CLICK: dict[str, Any] = {"pos_coords": [[240, 160]]}
CACHE_BYTES = 8_000_000
"""Room for three embeddings."""


def test_image_is_encoded_once_and_then_addressed_by_its_id(server):
    file = scene(10)
    before = server.embeddings()
    image = server.post("/embed", input_image=as_base64(file)).json()
    assert image["image_id"] == hashlib.sha256(file).hexdigest()
    assert (image["width"], image["height"]) == (480, 320)
    by_id = segmentation(server.post(image_id=image["image_id"], **CLICK, **NPY_ONLY))
    by_file = segmentation(server.post(input_image=as_base64(file), **CLICK, **NPY_ONLY))
    assert (by_id.masks == by_file.masks).all()
    assert by_id.result == by_file.result
    after = server.embeddings()
    assert after["encoded"] - before["encoded"] == 1
    assert after["found"] - before["found"] == 2


def test_overlay_is_the_same_by_id_and_by_file(server):
    file = scene(11)
    image_id = server.post("/embed", input_image=as_base64(file)).json()["image_id"]
    by_id = parts(server.post(image_id=image_id, **CLICK, mask_format="rle"))
    by_file = parts(server.post(input_image=as_base64(file), **CLICK, mask_format="rle"))
    assert by_id == by_file


def test_concurrent_requests_for_a_new_image_encode_it_once(server):
    file = as_base64(scene(12, (1600, 1200)))
    before = server.embeddings()["encoded"]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: server.post(input_image=file, **CLICK, **NPY_ONLY), range(6)))
    masks = [segmentation(answer).masks for answer in answers]
    assert all((mask == masks[0]).all() for mask in masks)
    assert server.embeddings()["encoded"] - before == 1


def test_click_on_a_known_image_does_not_wait_for_new_images(server):
    image_id = server.post("/embed", input_image=as_base64(scene(13))).json()["image_id"]
    new = [as_base64(scene(100 + number, (1600, 1200))) for number in range(8)]
    with concurrent.futures.ThreadPoolExecutor(len(new)) as pool:
        encodes = [pool.submit(server.post, "/embed", input_image=image) for image in new]
        assert segmentation(server.post(image_id=image_id, **CLICK, **NPY_ONLY))
        waiting = [encode for encode in encodes if not encode.done()]
        assert waiting  # the click was answered first
        assert all(encode.result().status_code == 200 for encode in encodes)


@pytest.mark.parametrize("image_id", ["0" * 64, "not an id", "../../etc/passwd", "\N{SNOWMAN}"])
def test_unknown_id_gets_a_404_with_advice(server, image_id):
    for path, fields in (("/mobile_sam", CLICK), ("/embed", {}), ("/everything", {})):
        answer = server.post(path, image_id=image_id, **fields)
        assert answer.status_code == 404
        document = problem(answer)
        assert document["type"] == "urn:mobile-sam:image-not-cached"
        assert "send the image again" in document["detail"]


def test_image_and_id_together_are_rejected(server):
    answer = server.post(input_image=as_base64(scene(14)), image_id="0" * 64, **CLICK)
    assert answer.status_code == 422
    assert problem(answer)["errors"][0]["got"] == "both"


def test_embeddings_survive_a_restart_and_the_client_resends_lost_images(restarted):
    server, photo, before = restarted
    with Client(server.url) as client:
        assert repr(client.segment(photo, **CLICK)) == before
        assert server.embeddings() == {"found": 1, "shared": 0, "encoded": 0}

        shutil.rmtree(server.log.parent / "embeddings")
        assert repr(client.segment(photo, **CLICK)) == before
    assert server.embeddings()["encoded"] == 1


def test_cache_stays_below_its_size_limit(restarted):
    server, _, _ = restarted
    client = Client(server.url)
    first = client.embed(scene(0))
    for seed in range(1, 6):
        assert server.post("/embed", input_image=as_base64(scene(seed))).status_code == 200
        entries = os.scandir(server.log.parent / "embeddings")
        assert 0 < sum(entry.stat().st_size for entry in entries if entry.is_file()) <= CACHE_BYTES
    answer = server.post(image_id=first.image_id, **CLICK, **NPY_ONLY)
    assert answer.status_code == 404
    with client:
        assert client.segment(first, **CLICK).image_id == first.image_id


@pytest.fixture(scope="module")
def restarted(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Embedding, str]]:
    """Restart a service with a small cache; return it, a photo encoded before the restart, and its earlier result."""
    folder = tmp_path_factory.mktemp("restarted")
    first = start_server(folder / "first log", MOBILE_SAM_MODEL_REPOSITORY=str(repository))
    with Client(first.url) as client:
        photo = client.embed(scene(15))
        before = repr(client.segment(photo, **CLICK))
    assert first.stop() == 0
    with serving(
        folder / "log", MOBILE_SAM_MODEL_REPOSITORY=str(repository), MOBILE_SAM_EMBEDDING_CACHE_BYTES=str(CACHE_BYTES)
    ) as server:
        yield server, photo, before


def test_service_without_a_writable_cache_works_and_warns_once(builtin_repository, tmp_path):
    (tmp_path / "a file").write_text("not a folder")
    with serving(
        tmp_path / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_EMBEDDING_CACHE_DIR=str(tmp_path / "a file" / "embeddings"),
    ) as server:
        for seed in range(6):
            answer = segmentation(server.post(input_image=as_base64(scene(seed)), **CLICK, **NPY_ONLY))
            assert answer.result["masks"]
        warnings = server.log.read_text().count("embeddings are not kept")
        max_warnings = 4  # one per encoding process: two for new images, one for long requests, one for /everything
        assert 1 <= warnings <= max_warnings
