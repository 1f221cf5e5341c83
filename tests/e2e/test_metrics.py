"""The series of BentoML, the edge, the watchdog and Triton in one `/metrics`."""

from collections import Counter

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.fleet import SMALL
from harness import serving, wait_until
from orchestrator.stages import Stage
from tests.e2e.pictures import as_base64, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXPECTED = {
    "bentoml_api_server_request",
    "mobile_sam_answers",
    "mobile_sam_requests_in_progress",
    "mobile_sam_ready",
    "mobile_sam_triton_metrics_up",
    "mobile_sam_loaded_timestamp_seconds",
    "mobile_sam_embeddings",
    "mobile_sam_stage",
    "mobile_sam_stage_seconds",
    "nv_inference_request_success",
    "nv_inference_queue_duration_us",
}


OF_ALL = {Stage.CACHE, Stage.DECODE, Stage.DECODER, Stage.UPSAMPLE}
OF_NEW_IMAGES = {Stage.WAIT, Stage.RESIZE, Stage.ENCODE, Stage.STORE}
OF_ANSWERS = {Stage.MASK, Stage.PICTURE}
STAGES = {
    "mobile_sam": OF_ALL | OF_NEW_IMAGES | OF_ANSWERS,
    "mobile_sam_costly": OF_ALL | OF_NEW_IMAGES | OF_ANSWERS,
    "mobile_sam_cached": OF_ALL | OF_ANSWERS,
    "mobile_sam_everything": OF_ALL | OF_NEW_IMAGES | {Stage.RECORD},
}
"""Stages of each model in a service without Redis."""


def series(name: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the name and labels of a series, which order does not distinguish."""
    return name, frozenset(labels.items())


def test_counters_of_a_fresh_service_are_0(tmp_path, builtin_repository):
    with serving(
        tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository), **SMALL
    ) as fresh:
        text = fresh.wait_for_metric("mobile_sam_triton_metrics_up")
        families = list(text_string_to_metric_families(text))
    values = {}
    for family in families:
        for sample in family.samples:
            values[series(sample.name, **sample.labels)] = sample.value
    expected = {series("mobile_sam_requests_in_progress")}
    for path in ("/mobile_sam", "/embed", "/everything"):
        expected.add(series("mobile_sam_answers_total", path=path, status="200", reason="ok"))
    for source in ("found", "shared", "encoded"):
        expected.add(series("mobile_sam_embeddings_total", source=source))
    for cause in ("died", "failed", "hung", "stopped"):
        expected.add(series("mobile_sam_triton_restarts_total", cause=cause))
    for model, stages in STAGES.items():
        expected.add(series("mobile_sam_cancelled_total", model=model))
        for stage in stages:
            expected.add(series("mobile_sam_stage_total", model=model, stage=stage))
            expected.add(series("mobile_sam_stage_seconds_total", model=model, stage=stage))
    assert values.keys() >= expected
    assert {values[each] for each in expected} == {0}
    counters = {
        family.name
        for family in families
        if family.name.startswith("mobile_sam_") and family.type == "counter"
    }
    assert counters <= {name.removesuffix("_total") for name, _ in expected}


def test_metrics_of_all_parts_appear_once(server):
    assert server.post("/embed", input_image=as_base64(scene(80))).ok
    text = server.wait_for_metric('mobile_sam_embeddings_total{source="encoded"}')
    families = list(text_string_to_metric_families(text))
    names = Counter(family.name for family in families)
    assert names.keys() >= EXPECTED
    assert max(names.values()) == 1
    samples = {sample.name: sample.value for family in families for sample in family.samples}
    assert samples["mobile_sam_ready"] == samples["mobile_sam_triton_metrics_up"] == 1
    encoded = [s for f in families for s in f.samples if s.labels == {"source": "encoded"}]
    assert [sample.name for sample in encoded] == ["mobile_sam_embeddings_total"]
    assert encoded[0].value >= 1


def test_stages_are_timed_per_model(server):
    click = {"input_image": as_base64(scene(79)), "pos_coords": [[200, 100]]}
    for _ in range(2):
        assert server.post(**click).ok
    expected = {
        (model, stage) for model in ("mobile_sam", "mobile_sam_cached") for stage in STAGES[model]
    }

    def values() -> list[dict[tuple[str, str], float]]:
        """Return the counts and the seconds of each model's stages, without any while Triton does
        not answer in time.
        """
        text = requests.get(f"{server.url}/metrics", timeout=60).text
        families = {family.name: family for family in text_string_to_metric_families(text)}
        return [
            {
                (sample.labels["model"], sample.labels["stage"]): sample.value
                for sample in (families[name].samples if name in families else ())
            }
            for name in ("mobile_sam_stage", "mobile_sam_stage_seconds")
        ]

    counts: dict[tuple[str, str], float] = {}
    seconds: dict[tuple[str, str], float] = {}

    def counted() -> bool:
        nonlocal counts, seconds
        counts, seconds = values()
        return all(found.get(series, 0) > 0 for found in (counts, seconds) for series in expected)

    wait_until(counted)
    assert counts.keys() == seconds.keys()
