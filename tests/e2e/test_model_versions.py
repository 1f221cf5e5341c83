"""Model versions side by side, and hot swaps under load, with the real Triton."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from requests_toolbelt.multipart.decoder import MultipartDecoder

from harness import Server, serving, wait_until
from harness.repository import make_repository
from harness.server import READY_TIMEOUT_S
from sam_onnx import model as models
from tests.e2e.local import decode, get, metadata
from tests.e2e.pictures import as_base64, scene
from tests.services import write_broken_encoder, write_other_weights
from utils.api.info import LOADED_METRIC
from utils.observability.reading import MAX_AGE_S
from utils.triton.versions import LOAD_ORDER

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEY = {"X-API-Key": "an-operators-own-key"}
CLICK: dict[str, Any] = {"pos_coords": [[100, 80]], "mask_format": "rle", "segmented_image": "none"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the built-in weights as version 1."""
    return make_repository(tmp_path_factory.mktemp("models") / "model_repository", "builtin")


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("server") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_MODEL_CONTROL_MODE="explicit",
        MOBILE_SAM_ADMIN_KEYS="ops:an-operators-own-key",
    ) as running:
        yield running


def current_info(server: Server) -> dict[str, Any]:
    """Return `/info` as of now: what it has may be as old as `MAX_AGE_S`."""
    time.sleep(MAX_AGE_S)
    info: dict[str, Any] = requests.get(f"{server.url}/info", timeout=60).json()
    return info


def result_of(answer: requests.Response) -> dict[str, Any]:
    """Return the result without the encoder's time, which only the first answer about an image
    has.
    """
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = json.loads(MultipartDecoder.from_response(answer).parts[-1].content)
    result.pop("encode_s", None)
    return result


def post_admin(server: Server, path: str = "load") -> requests.Response:
    return requests.post(f"{server.url}/admin/models/{path}", headers=KEY, timeout=READY_TIMEOUT_S)


def states(answer: requests.Response) -> dict[tuple[str, int], str]:
    assert answer.status_code == 200, answer.text
    return {(model["name"], model["version"]): model["state"] for model in answer.json()["models"]}


@contextmanager
def callers(server: Server) -> Iterator[Counter[tuple[int, int | str]]]:
    """Send requests, with pauses, from before the block until after it: new images, a known
    image, and its id.

    Yields:
        Number of responses by status and by model version or error text.
    """
    known = as_base64(scene(90))
    image_id = server.post("/embed", input_image=known).json()["image_id"]
    new = ({"input_image": as_base64(scene(number))} for number in itertools.count(1000))
    seen: Counter[tuple[int, int | str]] = Counter()
    over = threading.Event()

    def ask(fields: Iterator[dict[str, str]]) -> None:
        while not over.wait(0.2):
            answer = server.post(**next(fields), **CLICK)
            seen[
                answer.status_code, result_of(answer)["model_version"] if answer.ok else answer.text
            ] += 1

    with ThreadPoolExecutor(3) as pool:
        kinds = (
            new,
            itertools.repeat({"input_image": known}),
            itertools.repeat({"image_id": image_id}),
        )
        asking = [pool.submit(ask, fields) for fields in kinds]
        try:
            wait_until(lambda: seen)
            yield seen
            in_time = seen.total() + len(asking)  # the last ones may have been sent in the block
            wait_until(lambda: seen.total() > in_time)
        finally:
            over.set()
    assert [each.exception() for each in asking] == [None] * len(asking)


def move_version(version: int, source: Path, target: Path) -> None:
    """Move the folders of a version of all models from one repository to another folder."""
    for model in LOAD_ORDER:
        (target / model).mkdir(parents=True, exist_ok=True)
        (source / model / str(version)).rename(target / model / str(version))


def test_weights_are_swapped_under_load_without_errors(server, repository):
    image = as_base64(scene(90))
    first = result_of(server.post(input_image=image, **CLICK))
    assert (first["weights"]["name"], first["model_version"]) == ("builtin", 1)
    assert server.post(input_image=image, model_version=2, **CLICK).status_code == 422
    name = write_other_weights(repository, 2)

    with callers(server) as seen:
        loaded = states(post_admin(server))
        # The new weights encode the image stored with the old embedding.
        second = result_of(server.post(image_id=first["image_id"], **CLICK))
    assert set(loaded.items()) >= {
        ((model, version), "READY") for model in LOAD_ORDER for version in (1, 2)
    }
    assert (second["weights"]["name"], second["model_version"]) == (name, 2)
    assert set(seen) == {(200, 1), (200, 2)}, seen

    info = current_info(server)
    assert (info["model_versions"], info["weights"]["name"]) == ([1, 2], name)
    # Requests may name either version.
    again = result_of(server.post(image_id=first["image_id"], model_version=1, **CLICK))
    assert again == first
    embedded = server.post("/embed", input_image=image, model_version=1).json()
    assert (embedded["weights"]["name"], embedded["model_version"]) == ("builtin", 1)
    for version, weights in ((1, "builtin"), (2, name)):
        everything = server.post(
            "/everything", input_image=image, points_per_side=2, model_version=version
        ).json()
        assert (everything["model_version"], everything["weights"]["name"]) == (version, weights)

    embeddings = {
        version: get(server, f"/embeddings/{first['image_id']}?model_version={version}")
        for version in (1, 2)
    }
    for file in embeddings.values():
        about = metadata(file.content)
        # Of any loaded version.
        decoder = get(server, f"/decoder.onnx?weights={about['weights_sha256']}")
        mask, score = decode(file.content, decoder.content, [[100, 80]], [1])
        served = result_of(
            server.post(
                image_id=first["image_id"], model_version=int(about["model_version"]), **CLICK
            )
        )
        assert (int(mask.sum()), score) == pytest.approx(
            (served["masks"][0]["area"], served["masks"][0]["score"]), 2e-3
        )
    newest = get(server, f"/embeddings/{first['image_id']}")
    assert (newest.content, newest.headers["etag"]) == (
        embeddings[2].content,
        embeddings[2].headers["etag"],
    )
    assert newest.headers["etag"] != embeddings[1].headers["etag"]
    mixed = get(server, f"/decoder.onnx?weights={first['weights']['sha256']}&model_version=2")
    assert (mixed.status_code, mixed.json()["type"]) == (409, "urn:mobile-sam:other-weights")

    with callers(server) as seen:
        for model in LOAD_ORDER:
            shutil.rmtree(repository / model / "1")
        left = states(post_admin(server))
    assert {version for (_, version), state in left.items() if state == "READY"} == {2}
    assert {state for (_, version), state in left.items() if version == 1} == {"UNAVAILABLE"}
    assert set(seen) == {(200, 2)}, seen
    rejected = server.post(input_image=image, model_version=1, **CLICK)
    assert rejected.status_code == 422
    assert rejected.json()["errors"][0]["field"] == "model_version"
    assert get(server, f"/decoder.onnx?weights={first['weights']['sha256']}").status_code == 409
    assert server.readiness() == 200

    assert "restarting Triton" not in server.log.read_text()


def test_a_hot_swap_is_rolled_back_under_load_as_the_page_says(server, repository, tmp_path):
    old, image = tmp_path / "old", {"input_image": as_base64(scene(91))}
    new = result_of(server.post(**image, **CLICK))
    assert new["model_version"] == 2
    make_repository(tmp_path / "first", "builtin")
    move_version(1, tmp_path / "first", repository)
    states(post_admin(server))
    assert result_of(server.post(**image, **CLICK)) == new

    with callers(server) as seen:
        move_version(2, repository, old)
        left = states(post_admin(server))
    assert {version for (_, version), state in left.items() if state == "READY"} == {1}
    assert set(seen) == {(200, 1), (200, 2)}, seen
    first = result_of(server.post(**image, **CLICK))
    assert (first["model_version"], first["weights"]["name"]) == (1, "builtin")
    assert current_info(server)["weights"] == first["weights"]

    # And forth again, for the other tests.
    move_version(2, old, repository)
    states(post_admin(server))
    move_version(1, repository, old)
    states(post_admin(server))
    assert result_of(server.post(**image, **CLICK)) == new
    assert "restarting Triton" not in server.log.read_text()


def test_failed_load_keeps_the_old_models_even_after_restarts(server, repository):
    before = result_of(server.post(input_image=as_base64(scene(91)), **CLICK))
    write_other_weights(repository, 3)
    decoder = repository / "mobile_sam_decoder" / "3" / "model.onnx"
    intact = decoder.read_bytes()
    _, (_, of_other_weights) = models.builtin()
    of_another_shape = (repository / "mobile_sam_encoder" / "3" / "model.onnx").read_bytes()
    foreign = "decoder/3/model.onnx is not the file that was written with the weights other"
    for content, message in (
        (None, "decoder/3/model.onnx is missing"),
        (b"not a model", foreign),
        (of_other_weights.SerializeToString(), foreign),
        (of_another_shape, foreign),
    ):
        decoder.unlink() if content is None else decoder.write_bytes(content)
        answer = post_admin(server)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:mobile-sam:model-change")
        assert message in answer.json()["detail"]
        assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK)) == before

    triton = server.triton()
    for process in (triton, *server.workers()):
        process.kill()
    wait_until(
        lambda: triton not in server.family() and server.stubs() and server.readiness() == 200,
        READY_TIMEOUT_S,
        every=0.1,
    )
    assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK)) == before

    decoder.write_bytes(intact)
    assert states(post_admin(server))["mobile_sam", 3] == "READY"
    assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK))["model_version"] == 3
    for model in LOAD_ORDER:
        shutil.rmtree(repository / model / "3")
    states(post_admin(server))
    assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK)) == before


def test_version_whose_encoder_ignores_the_image_is_not_used(server, repository):
    before = result_of(server.post(input_image=as_base64(scene(94)), **CLICK))
    write_broken_encoder(repository, 4)
    answer = post_admin(server)
    assert answer.status_code == 409
    assert (
        "version 4 is not used: mobile_sam_encoder returned the same embedding"
        in answer.json()["detail"]
    )
    assert result_of(server.post(input_image=as_base64(scene(94)), **CLICK)) == before
    for model in LOAD_ORDER:
        shutil.rmtree(repository / model / "4")
    assert states(post_admin(server))["mobile_sam_encoder", before["model_version"]] == "READY"


def test_unloaded_model_gives_a_503_until_it_is_loaded_again(server):
    version = current_info(server)["model_versions"][-1]
    assert (
        states(post_admin(server, "mobile_sam_everything/unload"))["mobile_sam_everything", version]
        == "UNAVAILABLE"
    )
    answer = server.post("/everything", input_image=as_base64(scene(92)), points_per_side=2)
    assert (answer.status_code, answer.json()["type"]) == (
        503,
        "urn:mobile-sam:inference-unavailable",
    )
    assert (
        result_of(server.post(input_image=as_base64(scene(92)), **CLICK))["model_version"]
        == version
    )
    assert (
        states(post_admin(server, "mobile_sam_everything/load"))["mobile_sam_everything", version]
        == "READY"
    )
    assert server.post("/everything", input_image=as_base64(scene(92)), points_per_side=2).ok


def loaded_weights(server: Server, version: int) -> dict[str, bool]:
    """Return the names of the weights that a version had, with whether the metrics show them as
    loaded.
    """
    text = requests.get(f"{server.url}/metrics", timeout=60).text
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    return {
        sample.labels["name"]: sample.value > 0
        for sample in samples
        if sample.name == LOADED_METRIC
        and (sample.labels["model"], sample.labels["version"]) == ("mobile_sam", str(version))
    }


def test_info_names_replaced_weights_after_they_are_loaded(server, repository):
    before = current_info(server)
    version = before["model_versions"][-1]
    name = write_other_weights(repository, version, "replaced")
    assert current_info(server)["loaded"] == before["loaded"]
    loaded_decoder = f"/decoder.onnx?weights={before['weights']['sha256']}"
    # The loaded weights' own.
    assert get(server, "/decoder.onnx").content == get(server, loaded_decoder).content
    states(post_admin(server))
    assert (
        f"version {version} {name} (SHA-256 {hashlib.sha256(name.encode()).hexdigest()[:12]})"
        in server.log.read_text()
    )
    after = current_info(server)
    weights = result_of(server.post(input_image=as_base64(scene(93)), **CLICK))["weights"]
    *others, newest = before["loaded"]
    timeout = {"timeout_s": after["limits"]["timeout_s"]}  # of a slow encoder it is longer
    measured = {"encode_s": after["encode_s"], "limits": {**before["limits"], **timeout}}
    assert after == {
        **before,
        **measured,
        "weights": weights,
        "loaded": [*others, {**newest, "weights": weights}],
    }
    assert after["weights"]["name"] == name != before["weights"]["name"]
    # Not by the time of the load alone, which a clock that was set back makes an earlier one.
    assert loaded_weights(server, version) == {name: True, before["weights"]["name"]: False}
    assert get(server, f"/decoder.onnx?weights={weights['sha256']}").status_code == 200
