"""Embeddings by version and region; the decoder's file: which version it is of, and that its weights are loaded."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from safetensors.numpy import save

from tests.fake_segmenter import FakeSegmenter
from utils.api.decoding import LocalDecoding
from utils.api.errors import NotLoaded, OtherWeights, ServiceError, UnknownPath
from utils.api.openapi.examples import INFO
from utils.api.responses import Info
from utils.observability.context import CALLER

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
    info = AsyncMock(**{"document.return_value": Info.model_validate({**INFO, "loaded": loaded})})
    segmenter = FakeSegmenter()
    return LocalDecoding(lambda: segmenter, tmp_path, info)


def write(repository: Path, version: int, weights: str) -> None:
    for model, name, text in (
        ("mobile_sam_decoder", "model.onnx", f"decoder of {weights}"),
        ("mobile_sam", "weights.json", json.dumps({"sha256": weights, "fingerprint": f"made of {weights}"})),
    ):
        file = repository / model / str(version) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


async def ask(decoding: LocalDecoding, query: str = "", path: str = "/decoder.onnx", **headers: Any) -> httpx.Response:
    app = decoding.decoder if path == "/decoder.onnx" else decoding.embedding
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        return await client.get(path + query, headers=headers)


async def test_embedding_is_that_of_the_asked_region_and_version_and_owner(decoding):
    token = CALLER.set("alice")
    answer = await ask(decoding, "?region=0,8,64.5,72&model_version=2", "/embeddings/an-id")
    CALLER.reset(token)
    segmenter = decoding._segmenter()
    ((source, job),) = segmenter.jobs
    assert (source.image_id, source.owner, source.region) == ("an-id", "alice", (0, 8, 64.5, 72))
    assert (job.model_version, job.inputs, job.options) == (2, {}, {"embedding": True})
    assert answer.content == save(segmenter.embedding)
    assert (answer.headers["etag"], answer.headers["cache-control"]) == ('"the tag"', "private, no-cache")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (await ask(decoding, "", "/embeddings/an-id", **{"If-None-Match": '"the tag"'})).status_code == 304


async def test_paths_that_are_off_name_the_setting(tmp_path):
    off = LocalDecoding(FakeSegmenter, None, AsyncMock())
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
    assert (answer.headers["etag"], answer.headers["cache-control"]) == (f'"made of {weights}"', kept)
    for known in (answer.headers["etag"], "*"):
        assert (await ask(decoding, query, **{"If-None-Match": known})).status_code == 304


async def test_decoder_that_needed_a_key_is_not_kept_by_shared_caches(decoding):
    token = CALLER.set("alice")
    assert (await ask(decoding, f"?weights={NEW}")).headers["cache-control"].startswith("private, max-age")
    CALLER.reset(token)


@pytest.mark.parametrize("query", [f"?weights={OTHER}", f"?weights={OLD}&model_version=2"])
async def test_decoder_of_other_weights_is_a_409_with_those_served(decoding, query):
    with pytest.raises(OtherWeights) as refused:
        await ask(decoding, query)
    (error,) = refused.value.errors
    assert (refused.value.status, NEW in error.expected, error.got in query) == (409, True, True)


async def test_files_that_triton_has_not_loaded_are_not_served(decoding, tmp_path):
    write(tmp_path, 2, OTHER)
    with pytest.raises(OtherWeights, match=f"weights: expected {NEW}, which are loaded, got {OTHER}"):
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
    decoding.info.document.return_value.loaded = []
    with pytest.raises(NotLoaded):
        await ask(decoding, "?model_version=1")
