"""Problem documents and malformed answers."""

from __future__ import annotations

import json

import httpx
import pytest

from mobile_sam_client import NotThisService, Unauthorized
from mobile_sam_client._answers import (
    error_from_response,
    expect_valid_answer,
    parse_embedding,
    parse_info,
    parse_progress_line,
    parse_segmentations,
)
from tests.unit.client.mobile_sam_client.fake_service import (
    IMAGE,
    INFO,
    low_res_mask,
    mask_result,
    mask_with_area,
    multipart,
    record,
    rle,
)

URL = "http://127.0.0.1:3000"
PROBLEM = {"type": "urn:mobile-sam:unauthorized", "title": "No", "status": 401, "detail": "expected a key"}


def headers(content_type: str, **more: str) -> httpx.Headers:
    return httpx.Headers({"content-type": content_type, **more})


def test_problem_document_becomes_matching_error():
    error = error_from_response(
        401, headers("application/problem+json", **{"x-request-id": "id"}), json.dumps(PROBLEM).encode(), URL
    )
    assert isinstance(error, Unauthorized)
    assert str(error) == "401 unauthorized: expected a key (request id)"


def test_problem_document_without_status_uses_response_status():
    body = json.dumps({"type": "about:blank", "title": "No"}).encode()
    assert str(error_from_response(418, headers("application/problem+json"), body, URL)) == "418 blank: No"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"errors": [5]}', b'{"status": null}'])
def test_malformed_problem_document_is_reported(body):
    error = error_from_response(422, headers("application/problem+json"), body, URL)
    assert isinstance(error, NotThisService)
    assert str(error) == f"{URL} answered 422 with a malformed problem document"


def test_redirect_is_reported_with_its_target():
    error = error_from_response(308, headers("text/html", location="https://a.example/"), b"", URL)
    assert str(error) == f"{URL} answered 308, a redirect to https://a.example/: use that URL instead"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({}, "'limits' is missing"),
        ({**INFO, "limits": None}, "'NoneType' object is not subscriptable"),
        ({**INFO, "version": None, "limits": {}}, "'max_body_bytes' is missing"),
        ([], "expected a JSON object, got list"),
    ],
    ids=["empty", "null limits", "empty limits", "list"],
)
def test_malformed_info_is_reported(document, reason):
    with pytest.raises(NotThisService) as raised, expect_valid_answer(URL):
        parse_info(json.dumps(document).encode())
    assert reason in str(raised.value)


def test_answer_that_is_not_json_is_quoted():
    with pytest.raises(NotThisService, match="expected JSON, got '<html>'"), expect_valid_answer(URL):
        parse_info(b"<html>")


def test_unknown_fields_are_ignored():
    image = {**IMAGE, "new": 1, "weights": {**IMAGE["weights"], "new": 1}}
    assert parse_embedding(json.dumps(image).encode(), b"").width == 6
    assert parse_info(json.dumps({**INFO, "new": 1}).encode()).max_objects == 3


@pytest.mark.parametrize(
    ("masks", "rles", "expected"),
    [
        ([mask_result(0)], [rle(mask_with_area(3))] * 2, "zip"),
        ([mask_result(1)], [rle(mask_with_area(3))], r"expected masks of objects 0 to 0, got \[1\]"),
        (
            [mask_result(0), mask_result(1)],
            [rle(mask_with_area(3))] * 2,
            r"expected masks of objects 0 to 0, got \[0, 1\]",
        ),
        ([{**mask_result(0), "low_res_mask": "AAAA"}], rle(mask_with_area(3)), "allow_pickle"),
        ([{**mask_result(0), "box": [1, 2, 3]}], rle(mask_with_area(3)), "not enough values"),
        ([mask_result(0)], rle(mask_with_area(3).T), r"expected a mask of 4 x 6 pixels, got \[6, 4\]"),
    ],
    ids=["too many masks", "wrong object", "too many objects", "bad low_res_mask", "incomplete box", "transposed"],
)
def test_inconsistent_masks_are_reported(masks, rles, expected):
    body = multipart([("mask", json.dumps(rles).encode()), ("result", json.dumps({**IMAGE, "masks": masks}).encode())])
    with pytest.raises(NotThisService, match=expected), expect_valid_answer(URL):
        parse_segmentations("multipart/form-data; boundary=the-boundary", body, 1)


def test_truncated_low_res_mask_is_reported():
    masks = [{**mask_result(0), "low_res_mask": low_res_mask()[:200]}]
    rles = rle(mask_with_area(3))
    body = multipart([("mask", json.dumps(rles).encode()), ("result", json.dumps({**IMAGE, "masks": masks}).encode())])
    with pytest.raises(NotThisService), expect_valid_answer(URL):
        parse_segmentations("multipart/form-data; boundary=the-boundary", body, 1)


def test_progress_line_without_result_is_valid():
    assert parse_progress_line(b'{"done": 1, "total": 2}', None) == (1, 2, None)


def test_record_of_wrong_size_is_reported():
    wrong = {**record(2), "segmentation": rle(mask_with_area(2).T)}
    line = json.dumps({"done": 1, "total": 1, "result": {**IMAGE, "masks": [wrong]}}).encode()
    with pytest.raises(NotThisService, match="expected a mask of 4 x 6 pixels"), expect_valid_answer(URL):
        parse_progress_line(line, None)
