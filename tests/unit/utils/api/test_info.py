"""The document of `GET /info`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from utils.api.errors import InferenceUnavailable
from utils.api.info import LOADED_METRIC, Info, describe, loaded_by_version
from utils.settings import Settings

UNLOADED: dict[str, Any] = {"version": "1", "weights": None, "engine": None, "triton": "2.51.0"}
LABELS = ("model", "version", "name", "sha256", "trained", "note", "encoder", "decoder")


def loaded(name: str, *, version: int = 1, model: str = "mobile_sam", trained: str = "true") -> tuple[str, ...]:
    """Return the metric labels of a model with weights of that name."""
    return (model, str(version), name, "00", trained, f"{name}!", "cuda f32", "cuda f16")


def metrics_of(series: Sequence[tuple[str, ...]]) -> bytes:
    """Return Triton's metrics after these models were loaded in turn; the series are in reverse order."""
    registry = CollectorRegistry()
    Gauge("nv_gpu_utilization", "Another metric", registry=registry).set(1)
    gauge = Gauge(LOADED_METRIC, "Loaded weights", LABELS, registry=registry)
    for number, labels in reversed(list(enumerate(series))):
        gauge.labels(*labels).set(1.7e9 + number)
    return generate_latest(registry)


def weights_of(name: str, *, trained: bool = True) -> dict[str, Any]:
    weights = {"name": name, "sha256": "00", "trained": trained, "note": f"{name}!"}
    return {"weights": weights, "engine": {"encoder": "cuda f32", "decoder": "cuda f16"}}


def document(versions: list[int] | Exception, metrics: bytes = b"") -> dict[str, Any]:
    async def ready() -> list[int]:
        if isinstance(versions, Exception):
            raise versions
        return versions

    async def shown() -> bytes:
        return metrics

    return asyncio.run(Info(UNLOADED, ready, shown, lambda: "2.51.0").document())


def test_loaded_by_version_returns_the_latest_weights_and_engine_of_each_version():
    others = [loaded("other", model=model) for model in ("mobile_sam_cached", "mobile_sam_everything")]
    series = [loaded("old"), loaded("new"), loaded("tenth", version=10, trained="false"), *others]
    assert loaded_by_version(metrics_of(series)) == {1: weights_of("new"), 10: weights_of("tenth", trained=False)}


@pytest.mark.parametrize("name", ['a "quoted" name', "back\\slash, {brace} = 1", "two\nlines", "ü\u2028\x85.pt"])
def test_loaded_by_version_keeps_every_character_of_names(name):
    assert loaded_by_version(metrics_of([loaded(name)])) == {1: weights_of(name)}


@pytest.mark.parametrize("metrics", [b"", metrics_of([])], ids=["no metrics", "no series"])
def test_info_has_no_weights_without_series(metrics):
    assert document([1], metrics) == {**UNLOADED, "model_versions": [1]}


@pytest.mark.parametrize(("versions", "name"), [([1], "first"), ([1, 2], "second"), ([2, 10], "tenth")])
def test_info_has_the_weights_of_the_newest_loaded_version(versions, name):
    metrics = metrics_of([loaded("tenth", version=10), loaded("second", version=2), loaded("first")])
    assert document(versions, metrics) == {**UNLOADED, **weights_of(name), "model_versions": versions}


@pytest.mark.parametrize("versions", [[], InferenceUnavailable("starting")], ids=["nothing loaded", "away"])
def test_info_has_no_weights_while_no_version_is_loaded(versions):
    assert document(versions, metrics_of([loaded("unloaded")])) == {**UNLOADED, "model_versions": []}


def test_max_image_pixels_defaults_to_that_of_the_orchestrator(tmp_path: Path):
    config = tmp_path / "mobile_sam" / "config.pbtxt"
    config.parent.mkdir()
    config.write_text('parameters { key: "max_image_pixels" value: { string_value: "1234" } }')
    for settings, pixels in ((Settings(), 1234), (Settings(max_image_pixels=99), 99)):
        assert describe(tmp_path, settings, key_needed=False)["limits"]["max_image_pixels"] == pixels


@pytest.mark.parametrize("needed", [False, True])
def test_description_without_a_local_repository_has_defaults(needed):
    described = describe(None, Settings(), key_needed=needed)
    assert (described["limits"]["max_image_pixels"], described["key_needed"]) == (25_000_000, needed)
