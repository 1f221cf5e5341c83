"""Two services that keep their embeddings in one folder, which has room for a few only, answer
like one.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from benchmarks.fleet import SMALL
from harness import Server, serving
from tests.e2e.pictures import as_base64, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK: dict[str, Any] = {
    "pos_coords": [[100, 100]],
    "mask_format": "rle",
    "segmented_image": "none",
}
CACHE_BYTES = 8 * 2**20
"""Room for three embeddings."""
IMAGES = [as_base64(scene(seed)) for seed in range(400, 408)]


@pytest.fixture(scope="module")
def services(
    builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Server]]:
    settings = SMALL | {
        "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
        "MOBILE_SAM_EMBEDDING_CACHE_DIR": str(tmp_path_factory.mktemp("embeddings")),
        "MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(CACHE_BYTES),
    }
    with ExitStack() as stack:
        yield [
            stack.enter_context(serving(tmp_path_factory.mktemp(name) / "log", **settings))
            for name in ("first", "second")
        ]


def masks_of(server: Server, image: str) -> Any:
    """Return the masks of a click, with their scores and boxes."""
    request = {"input_image": image, **CLICK}
    answer = requests.post(
        f"{server.url}/mobile_sam", json=request, headers={"Accept": "application/json"}, timeout=60
    )
    answer.raise_for_status()
    return answer.json()["masks"]


def test_image_encoded_by_one_service_is_found_by_the_other(services):
    first, second = services
    image = as_base64(scene(399))
    masks = masks_of(first, image)
    before = second.embeddings()
    assert masks_of(second, image) == masks
    after = second.embeddings()
    assert (after["found"] - before["found"], after["encoded"] - before["encoded"]) == (1, 0)


def test_services_that_evict_each_others_embeddings_answer_alike(services):
    alone = [masks_of(services[0], image) for image in IMAGES]
    calls = [(server, image) for _ in range(4) for image in IMAGES for server in services]
    with ThreadPoolExecutor(8) as threads:
        masks = list(threads.map(lambda call: masks_of(*call), calls))
    assert masks == [result for _ in range(4) for result in alone for _ in services]
    assert [server.readiness() for server in services] == [200, 200]


# Runs last, because it kills a service.
def test_killed_service_leaves_the_other_one_its_embeddings(services):
    first, second = services
    alone = [masks_of(second, image) for image in IMAGES]
    with ThreadPoolExecutor(4) as threads:
        for image in IMAGES:
            threads.submit(first.post, input_image=image, **CLICK)  # these may be lost
        masks = threads.map(lambda image: masks_of(second, image), IMAGES)
        first.kill()
        assert list(masks) == alone
        assert [masks_of(second, image) for image in IMAGES] == alone
