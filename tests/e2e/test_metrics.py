"""One `/metrics` for everything: BentoML's series, the edge's, the watchdog's, Triton's."""

from __future__ import annotations

from collections import Counter

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e

EXPECTED = {
    "bentoml_api_server_request",
    "mobile_sam_answers",
    "mobile_sam_requests_in_progress",
    "mobile_sam_ready",
    "mobile_sam_triton_metrics_up",
    "mobile_sam_embeddings",
    "nv_inference_request_success",
    "nv_inference_queue_duration_us",
}


def test_every_part_is_there_and_none_twice(server):
    assert server.post("/embed", input_image=as_base64(scene(80))).ok
    text = requests.get(f"{server.url}/metrics", timeout=5).text
    families = list(text_string_to_metric_families(text))
    names = Counter(family.name for family in families)
    assert names.keys() >= EXPECTED
    assert max(names.values()) == 1
    samples = {sample.name: sample.value for family in families for sample in family.samples}
    assert samples["mobile_sam_ready"] == samples["mobile_sam_triton_metrics_up"] == 1
    encoded = [s for f in families for s in f.samples if s.labels == {"source": "encoded"}]
    assert [sample.name for sample in encoded] == ["mobile_sam_embeddings_total"]
    assert encoded[0].value >= 1
