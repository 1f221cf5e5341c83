"""The series of BentoML, the edge, the watchdog and Triton in one `/metrics`."""

from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.call import CACHE, DECODE, DECODER, ENCODE, MASK, PICTURE, RESIZE, STORE, UPSAMPLE, WAIT
from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e

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


def test_metrics_of_all_parts_appear_once(server):
    assert server.post("/embed", input_image=as_base64(scene(80))).ok
    text = server.wait_for_metric("mobile_sam_stage_total{")
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
    server.wait_for_metric('mobile_sam_stage_seconds_total{model="mobile_sam",stage="picture"}')
    text = server.wait_for_metric('mobile_sam_stage_seconds_total{model="mobile_sam_cached",stage="picture"}')
    families = {family.name: family for family in text_string_to_metric_families(text)}
    counts, seconds = (
        {(sample.labels["model"], sample.labels["stage"]): sample.value for sample in families[name].samples}
        for name in ("mobile_sam_stage", "mobile_sam_stage_seconds")
    )
    common = {DECODE, DECODER, UPSAMPLE, MASK, PICTURE}
    stages = {"mobile_sam": {CACHE, WAIT, RESIZE, ENCODE, STORE, *common}, "mobile_sam_cached": {CACHE, *common}}
    expected = {(model, stage) for model, names in stages.items() for stage in names}
    assert counts.keys() == seconds.keys() >= expected
    assert all(counts[series] >= 1 and seconds[series] > 0 for series in expected)
