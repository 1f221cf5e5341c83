"""Examples: valid requests, and responses that fit their models."""

import hashlib
import json

import orjson
import pytest
from pydantic import TypeAdapter

from utils.api import responses
from utils.api.inputs import image_source, list_of_images, to_inference_request
from utils.api.openapi import document
from utils.api.openapi.examples import FILE, LINES, REQUESTS
from utils.api.request_body import parse_body
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest

OPERATIONS = {
    operation["operationId"]: operation
    for methods in document(need_key=True, admin=True)["paths"].values()
    for operation in methods.values()
}


@pytest.mark.parametrize(
    ("name", "model"),
    [("mobile_sam", SegmentRequest), ("embed", EmbedRequest), ("everything", EverythingRequest)],
)
def test_example_requests_are_valid(name, model):
    for example in REQUESTS[name].values():
        request = parse_body(json.dumps(example["value"]).encode(), model)
        several = list_of_images(request, []) if isinstance(request, EmbedRequest) else []
        for source in several or [image_source(request)]:
            assert (source.file, source.image_id) in {
                (FILE, None),
                (None, hashlib.sha256(FILE).hexdigest()),
            }
        if isinstance(request, SegmentRequest):
            points = to_inference_request(request).inputs["point_coords"]
            assert ((points >= 0) & (points <= [80, 60])).all()


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_response_has_examples_that_fit_its_model(name):
    for answer in OPERATIONS[name]["responses"].values():
        for media, content in answer["content"].items():
            assert content["examples"]
            if media in {"application/json", "application/problem+json"}:
                model = getattr(responses, content["schema"]["$ref"].rpartition("/")[2])
                for example in content["examples"].values():
                    TypeAdapter(model).validate_json(
                        orjson.dumps(example["value"]), strict=True, extra="forbid"
                    )


def test_example_stream_is_progress_followed_by_the_result():
    lines = [
        responses.Progress.model_validate_json(line, extra="forbid") for line in LINES.splitlines()
    ]
    assert [(line.done, line.result is not None) for line in lines] == [
        (n, n == 4) for n in range(5)
    ]
