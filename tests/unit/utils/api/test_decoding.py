"""Embeddings by version and region; the decoder's file: which version it is of, and that its
weights are loaded.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from safetensors.numpy import save

from tests.fake_segmenter import FakeSegmenter
from utils.api.answers import MAX_UNSTREAMED_BYTES
from utils.api.decoding import LocalDecoding
from utils.api.openapi.examples import INFO
from utils.api.responses import Info
from utils.errors import NotLoaded, OtherWeights, ServiceError, UnknownPath
from utils.inference.contents import CHUNK_BYTES, OpenFile, chunks
from utils.observability.context import KEY_NAME

OLD, NEW, OTHER = "a" * 64, "b" * 64, "c" * 64


@pytest.fixture
def decoding(tmp_path: Path) -> LocalDecoding:
    """Versions 1 and 2 with other weights, both loaded."""
    for version, weights in ((1, OLD), (2, NEW)):
        write(tmp_path, version, weights)
    loaded = [
        {**INFO["loaded"][0], "version": version, "weights": {**INFO["weights"], "sha256": weights}}
        for version, weights in ((1, OLD), (2, NEW))
    ]
    info = AsyncMock(**{"recent.return_value": Info.model_validate({**INFO, "loaded": loaded})})
    segmenter = FakeSegmenter()
    return LocalDecoding(segmenter, tmp_path, info)


def write(repository: Path, version: int, weights: str) -> None:
    for model, name, text in (
        ("mobile_sam_decoder", "model.onnx", f"decoder of {weights}"),
        (
            "mobile_sam",
            "weights.json",
            json.dumps({"sha256": weights, "fingerprint": f"made of {weights}"}),
        ),
    ):
        file = repository / model / str(version) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


async def ask(
    decoding: LocalDecoding, query: str = "", path: str = "/decoder.onnx", **headers: Any
) -> httpx.Response:
    app = decoding.decoder if path == "/decoder.onnx" else decoding.embedding
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        return await client.get(path + query, headers=headers)


async def test_embedding_is_that_of_the_asked_region_and_version_and_owner(decoding):
    token = KEY_NAME.set("alice")
    answer = await ask(decoding, "?region=0,8,64.5,72&model_version=2", "/embeddings/an-id")
    KEY_NAME.reset(token)
    segmenter = decoding._segmenter
    ((source, request),) = segmenter.jobs
    assert (source.image_id, source.owner, source.region) == ("an-id", "alice", (0, 8, 64.5, 72))
    assert (request.model_version, request.inputs, request.options) == (2, {}, {"embedding": True})
    assert answer.content == save(segmenter.embedding)
    assert (answer.headers["etag"], answer.headers["cache-control"]) == (
        '"the tag"',
        "private, no-cache",
    )
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (
        await ask(decoding, "", "/embeddings/an-id", **{"If-None-Match": '"the tag"'})
    ).status_code == 304


async def test_paths_that_are_off_name_the_setting(tmp_path):
    off = LocalDecoding(FakeSegmenter(), None, AsyncMock())
    for path in ("/decoder.onnx", "/embeddings/an-id"):
        with pytest.raises(UnknownPath, match="expected MOBILE_SAM_LOCAL_DECODING=on"):
            await ask(off, "", path)


@pytest.mark.parametrize(
    ("query", "weights"),
    [
        pytest.param("", NEW, id="newest"),
        pytest.param("?model_version=1", OLD, id="version"),
        pytest.param(f"?weights={OLD}", OLD, id="weights"),
        pytest.param(f"?weights={NEW}&model_version=2", NEW, id="both"),
    ],
)
async def test_decoder_is_that_of_the_asked_version_or_weights(decoding, query, weights):
    answer = await ask(decoding, query)
    assert answer.text == f"decoder of {weights}"
    kept = "public, max-age=31536000, immutable" if "weights" in query else "no-cache"
    assert (answer.headers["etag"], answer.headers["cache-control"]) == (
        f'"made of {weights}"',
        kept,
    )
    for known in (answer.headers["etag"], "*"):
        assert (await ask(decoding, query, **{"If-None-Match": known})).status_code == 304


async def test_decoder_that_needed_a_key_is_not_kept_by_shared_caches(decoding):
    token = KEY_NAME.set("alice")
    assert (
        (await ask(decoding, f"?weights={NEW}"))
        .headers["cache-control"]
        .startswith("private, max-age")
    )
    KEY_NAME.reset(token)


@pytest.mark.parametrize("query", [f"?weights={OTHER}", f"?weights={OLD}&model_version=2"])
async def test_decoder_of_other_weights_is_a_409_with_those_served(decoding, query):
    with pytest.raises(OtherWeights) as refused:
        await ask(decoding, query)
    (error,) = refused.value.errors
    assert (refused.value.status, NEW in error.expected, error.got in query) == (409, True, True)


async def test_files_that_triton_has_not_loaded_are_not_served(decoding, tmp_path):
    write(tmp_path, 2, OTHER)
    with pytest.raises(
        OtherWeights, match=f"weights: expected {NEW}, which are loaded, got {OTHER}"
    ):
        await ask(decoding)
    (tmp_path / "mobile_sam" / "2" / "weights.json").unlink()  # as while another decoder is written
    with pytest.raises(OtherWeights, match="got none"):
        await ask(decoding)
    (tmp_path / "mobile_sam_decoder" / "2" / "model.onnx").unlink()
    with pytest.raises(OtherWeights, match="got none"):
        await ask(decoding)
    assert (await ask(decoding, "?model_version=1")).status_code == 200


async def test_versions_that_are_not_loaded_are_refused(decoding):
    with pytest.raises(ServiceError, match="model_version: expected a loaded version"):
        await ask(decoding, "?model_version=3")
    decoding.info.recent.return_value.loaded = []
    with pytest.raises(NotLoaded):
        await ask(decoding, "?model_version=1")


async def test_unchanged_decoder_is_not_opened(decoding, monkeypatch):
    monkeypatch.setattr("utils.api.decoding.OpenFile", None)
    assert (await ask(decoding, **{"If-None-Match": "*"})).status_code == 304


async def test_request_for_a_version_loaded_a_moment_ago_has_triton_asked_again(decoding):
    current = decoding.info.recent.return_value
    decoding.info.recent.side_effect = [
        current.model_copy(update={"loaded": current.loaded[:1]}),
        current,
    ]
    assert (await ask(decoding, "?model_version=2")).text == f"decoder of {NEW}"


async def test_decoder_changed_while_it_is_sent_is_not_sent_completely(decoding, tmp_path):
    path = tmp_path / "mobile_sam_decoder" / "2" / "model.onnx"
    path.write_bytes(b"a" * (MAX_UNSTREAMED_BYTES + 1))
    file = OpenFile(path)
    pieces = chunks(file)
    assert next(pieces) == b"a" * CHUNK_BYTES
    with path.open("r+b") as same:
        same.write(b"b" * (MAX_UNSTREAMED_BYTES + 1))
    os.utime(path, (1, 1))  # a clock tick later
    with pytest.raises(OSError, match=r"model\.onnx was changed while it was sent"):
        list(pieces)


async def test_decoder_replaced_while_it_is_sent_stays_the_one_that_was_opened(decoding, tmp_path):
    path, other = tmp_path / "model.onnx", tmp_path / "other"
    path.write_bytes(b"a" * (CHUNK_BYTES + 1))
    other.write_bytes(b"b" * (CHUNK_BYTES + 1))
    pieces = chunks(OpenFile(path))
    assert next(pieces) == b"a" * CHUNK_BYTES
    other.replace(path)
    assert list(pieces) == [b"a"]


async def test_decoder_and_its_record_are_of_one_snapshot_while_links_change_one_after_another(
    decoding, tmp_path
):
    taken = tmp_path / "taken"
    for name, weights in (("old", NEW), ("new", OTHER)):
        write(tmp_path / name, 2, weights)
        for model in ("mobile_sam_decoder", "mobile_sam"):
            (taken / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / name / model / "2").rename(taken / name / model)
    for model, name in (("mobile_sam_decoder", "new"), ("mobile_sam", "old")):
        shutil.rmtree(tmp_path / model / "2")
        (tmp_path / model / "2").symlink_to(taken / name / model)
    # The old one is loaded, its decoder's link is gone.
    with pytest.raises(OtherWeights, match=f"got {OTHER}"):
        await ask(decoding, "?model_version=2")
