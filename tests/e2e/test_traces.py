"""Traces of requests from the caller through the edge and Triton to encoder and decoder."""

import json
from typing import Any

import pytest
import requests

from harness import Server
from tests.e2e.collector import Span
from tests.e2e.pictures import as_base64, scene
from tests.services import KEYS

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK = {"pos_coords": [[200, 100]], "mask_format": "rle", "segmented_image": "none"}
CALLER_SPAN_ID = "c" * 16
REQUEST_SPAN = "POST /mobile_sam"


def send(server: Server, trace: int, fields: dict[str, Any]) -> requests.Response:
    """Send a request with a trace context."""
    headers = {
        "traceparent": f"00-{trace:032x}-{CALLER_SPAN_ID}-01",
        "X-Request-ID": f"request-{trace}",
        "X-API-Key": KEYS["bob"],
    }
    return requests.post(f"{server.url}/mobile_sam", json=fields, headers=headers, timeout=60)


def test_click_on_a_new_image_is_one_trace_across_edge_and_triton(keyed, collector):
    assert send(keyed, 1, {"input_image": as_base64(scene(90)), **CLICK}).ok
    models = {"mobile_sam", "mobile_sam_encoder", "mobile_sam_decoder"}
    spans = collector.trace(f"{1:032x}", {REQUEST_SPAN, "wait mobile_sam", *models})
    by_name = {span.name: span for span in spans}
    in_triton = ["mobile_sam", "InferRequest", "infer mobile_sam", REQUEST_SPAN]
    assert ancestors(by_name["mobile_sam_encoder"], spans) == in_triton
    assert ancestors(by_name["mobile_sam_decoder"], spans) == in_triton
    assert ancestors(by_name["wait mobile_sam"], spans) == [REQUEST_SPAN]
    assert "infer mobile_sam_cached" not in by_name
    assert {span.service for span in spans if span.name in in_triton[2:]} == {"masks"}
    assert {by_name[name].service for name in ("mobile_sam_encoder", "InferRequest")} == {
        "masks-triton"
    }
    encoder, request = by_name["mobile_sam_encoder"], by_name[REQUEST_SPAN]
    assert request.start_ns < encoder.start_ns < encoder.end_ns < request.end_ns


def test_file_of_a_known_image_goes_to_the_model_for_known_ones(keyed, collector):
    for trace in (3, 4):
        assert send(keyed, trace, {"input_image": as_base64(scene(91)), **CLICK}).ok
    spans = collector.trace(f"{4:032x}", {REQUEST_SPAN, "mobile_sam_cached"})
    by_name = {span.name: span for span in spans}
    assert ancestors(by_name["mobile_sam_cached"], spans) == [
        "InferRequest",
        "infer mobile_sam_cached",
        REQUEST_SPAN,
    ]
    assert "infer mobile_sam" not in by_name


def test_span_has_the_request_id_and_log_lines_have_the_trace_id(keyed, collector):
    assert send(keyed, 2, {}).status_code == 422
    (request,) = collector.trace(f"{2:032x}", {REQUEST_SPAN})
    expected = {
        "http.method": "POST",
        "http.route": "/mobile_sam",
        "http.status_code": "422",
        "mobile_sam.request_id": "request-2",
        "mobile_sam.reason": "invalid-request",
    }
    assert request.attributes.items() >= expected.items()
    assert request.parent_id == CALLER_SPAN_ID
    lines = [
        json.loads(line) for line in keyed.log.read_text().splitlines() if line.startswith("{")
    ]
    about = [line for line in lines if line.get("request_id") == "request-2"]
    (entry,) = [line for line in about if "422 invalid-request" in line["message"]]
    assert entry["trace_id"] == f"{2:032x}"


def ancestors(span: Span, spans: list[Span]) -> list[str]:
    """Return the names of a span's ancestors from its parent to the service's root span."""
    by_id = {each.span_id: each for each in spans}
    names = []
    while span.parent_id != CALLER_SPAN_ID:
        span = by_id[span.parent_id]
        names.append(span.name)
    return names
