"""Two services with separate caches share embeddings through one Redis."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from tests.e2e.answers import segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, launch_server
from tests.redis_server import redis_server, until

pytestmark = pytest.mark.e2e

NPY_ONLY: dict[str, Any] = {"mask_format": "npy", "segmented_image": "none"}
CLICK: dict[str, Any] = {"pos_coords": [[240, 160]]}


def test_replicas_share_embeddings_and_survive_the_loss_of_redis(builtin_repository, tmp_path):
    with redis_server(tmp_path) as redis, ExitStack() as stack:

        def launch(name: str) -> Server:
            folder = tmp_path / name
            folder.mkdir()
            server = launch_server(
                folder / "log",
                MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
                MOBILE_SAM_REDIS_URL=redis.url,
            )
            stack.callback(server.request_stop)
            return server

        one, other = (server.wait_until_ready() for server in [launch("first"), launch("second")])

        answer = segmentation(one.post(input_image=as_base64(scene(50)), **CLICK, **NPY_ONLY))
        until(lambda: len(redis.names()) == 2)  # the other one is the watchdogs' test image
        again = segmentation(other.post(image_id=answer.result["image_id"], **CLICK, **NPY_ONLY))
        assert (again.masks == answer.masks).all()
        assert again.result == answer.result
        assert other.embeddings() == {"found": 0, "shared": 1, "encoded": 0}
        segmentation(other.post(image_id=answer.result["image_id"], **CLICK, **NPY_ONLY))
        assert other.embeddings() == {"found": 1, "shared": 1, "encoded": 0}

        redis.stop()
        for seed in range(51, 55):
            assert segmentation(other.post(input_image=as_base64(scene(seed)), **CLICK, **NPY_ONLY))
        assert other.embeddings()["encoded"] == 4
        warnings = other.log.read_text().count("Redis cannot be used")
        max_warnings = 3  # one per encoding process
        assert 1 <= warnings <= max_warnings
