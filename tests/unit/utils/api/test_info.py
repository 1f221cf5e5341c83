"""The document of `GET /info`."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from utils.api.info import LOADED_METRIC, InfoEndpoint, describe, loaded_by_version
from utils.api.openapi.examples import INFO
from utils.errors import InferenceUnavailable
from utils.settings import Settings
from utils.triton.health import Health

LABELS = (
    "model",
    "version",
    "name",
    "sha256",
    "trained",
    "note",
    "encoder",
    "decoder",
    "descriptor",
)
DESCRIPTOR = INFO["loaded"][0]["descriptor"]


def loaded(
    name: str, *, version: int = 1, model: str = "mobile_sam", trained: str = "true"
) -> tuple[str, ...]:
    """Return the metric labels of a model with weights of that name."""
    return (
        model,
        str(version),
        name,
        "00",
        trained,
        f"{name}!",
        "cuda f32",
        "cuda f16",
        json.dumps({**DESCRIPTOR, "batch": 8}),
    )


def metrics_of(series: Sequence[tuple[str, ...]]) -> bytes:
    """Return Triton's metrics after these models were loaded in turn; the series are in reverse
    order.
    """
    registry = CollectorRegistry()
    Gauge("nv_gpu_utilization", "Another metric", registry=registry).set(1)
    gauge = Gauge(LOADED_METRIC, "Loaded weights", LABELS, registry=registry)
    for number, labels in reversed(list(enumerate(series))):
        gauge.labels(*labels).set(1.7e9 + number)
    return generate_latest(registry)


def weights_of(name: str, *, trained: bool = True) -> dict[str, Any]:
    weights = {"name": name, "sha256": "00", "trained": trained, "note": f"{name}!"}
    return {"weights": weights, "engine": {"encoder": "cuda f32", "decoder": "cuda f16"}}


def loaded_as(name: str, version: int = 1, *, trained: bool = True) -> dict[str, Any]:
    return {"version": version, **weights_of(name, trained=trained), "descriptor": DESCRIPTOR}


def read_back(metrics: bytes) -> dict[int, dict[str, Any]]:
    return {version: found.model_dump() for version, found in loaded_by_version(metrics).items()}


def test_loaded_by_version_returns_the_latest_weights_and_engine_of_each_version():
    others = [
        loaded("other", model=model) for model in ("mobile_sam_cached", "mobile_sam_everything")
    ]
    series = [loaded("old"), loaded("new"), loaded("tenth", version=10, trained="false"), *others]
    assert read_back(metrics_of(series)) == {
        1: loaded_as("new"),
        10: loaded_as("tenth", 10, trained=False),
    }


@pytest.mark.parametrize(
    "name", ['a "quoted" name', "back\\slash, {brace} = 1", "two\nlines", "ü\u2028\x85.pt"]
)
def test_loaded_by_version_keeps_every_character_of_names(name):
    assert read_back(metrics_of([loaded(name)])) == {1: loaded_as(name)}


NOTHING: dict[str, Any] = {"weights": None, "engine": None}
ALL = metrics_of([loaded("tenth", version=10), loaded("second", version=2), loaded("first")])


@pytest.mark.parametrize(
    ("versions", "metrics", "expected"),
    [
        pytest.param([1], b"", NOTHING, id="no metrics"),
        pytest.param([1], metrics_of([]), NOTHING, id="no series"),
        pytest.param([1], ALL, weights_of("first"), id="one version"),
        pytest.param([1, 2], ALL, weights_of("second"), id="two versions"),
        pytest.param([2, 10], ALL, weights_of("tenth"), id="not by text"),
        pytest.param([], ALL, NOTHING, id="nothing loaded"),
        pytest.param(InferenceUnavailable("starting"), ALL, NOTHING, id="away"),
    ],
)
def test_info_has_weights_and_engine_of_the_newest_loaded_version(versions, metrics, expected):
    unloaded = describe(None, Settings(), key_needed=True)
    ready, read = AsyncMock(side_effect=[versions]), AsyncMock(return_value=metrics)
    health = Health("ready", version="2.51.0", encode_s=16.12)
    found = asyncio.run(
        InfoEndpoint(unloaded, ready, read, lambda: health, lambda: 1031.68).document()
    ).model_dump()
    ready_versions = versions if isinstance(versions, list) else []
    listed = [
        loaded_as({1: "first", 2: "second", 10: "tenth"}[each], each) for each in ready_versions
    ]
    assert found == {
        **unloaded.model_dump(),
        **expected,
        "limits": {**unloaded.limits.model_dump(), "timeout_s": 1031.7},
        "triton": "2.51.0",
        "model_versions": ready_versions,
        "loaded": listed if metrics == ALL else [],
        "encode_s": 16.12,
    }


def test_info_reads_late_metrics_again():
    read = AsyncMock(side_effect=[b"", metrics_of([loaded("first")]), ALL])
    unloaded = describe(None, Settings(), key_needed=True)
    info = InfoEndpoint(
        unloaded, AsyncMock(return_value=[1, 2]), read, lambda: Health("ready"), lambda: 60
    )
    document = asyncio.run(info.document())
    assert [version.weights.name for version in document.loaded] == ["first", "second"]


def test_max_image_pixels_defaults_to_that_of_the_orchestrator(tmp_path: Path):
    config = tmp_path / "mobile_sam" / "config.pbtxt"
    config.parent.mkdir()
    config.write_text('parameters { key: "max_image_pixels" value: { string_value: "1234" } }')
    for repository, setting, pixels in (
        (tmp_path, None, 1234),
        (tmp_path, 99, 99),
        (None, None, 25_000_000),
    ):
        described = describe(repository, Settings(max_image_pixels=setting), key_needed=False)
        assert described.limits.max_image_pixels == pixels
