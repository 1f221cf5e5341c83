"""Refusals, and answers that cannot be understood."""

from __future__ import annotations

import json

import httpx
import pytest

from mobile_sam_client import NotThisService, Unauthorized
from mobile_sam_client._answers import embedding_of, info_of, refusal, segmentations_of, step_of, understanding
from tests.unit.client.mobile_sam_client.fake_service import (
    IMAGE,
    INFO,
    found,
    low_res_mask,
    mask_of,
    multipart,
    record,
    rle,
)

URL = "http://127.0.0.1:3000"
PROBLEM = {"type": "urn:mobile-sam:unauthorized", "title": "No", "status": 401, "detail": "expected a key"}


def headers(content_type: str, **more: str) -> httpx.Headers:
    return httpx.Headers({"content-type": content_type, **more})


def test_a_problem_document_becomes_its_error():
    error = refusal(
        401, headers("application/problem+json", **{"x-request-id": "id"}), json.dumps(PROBLEM).encode(), URL
    )
    assert isinstance(error, Unauthorized)
    assert str(error) == "401 unauthorized: expected a key (request id)"


def test_a_problem_document_without_status_has_the_answers():
    body = json.dumps({"type": "about:blank", "title": "No"}).encode()
    assert str(refusal(418, headers("application/problem+json"), body, URL)) == "418 blank: No"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"errors": [5]}', b'{"status": null}'])
def test_a_problem_document_that_is_none_is_told_as_such(body):
    error = refusal(422, headers("application/problem+json"), body, URL)
    assert isinstance(error, NotThisService)
    assert str(error) == f"{URL} answers 422 with a problem document that cannot be read"


def test_where_an_address_leads_elsewhere_the_error_says_where():
    error = refusal(308, headers("text/html", location="https://a.example/"), b"", URL)
    assert str(error) == f"{URL} answers 308 and leads to https://a.example/: give the address that that has"


@pytest.mark.parametrize(
    ("document", "missing"),
    [
        ({}, "there is no 'limits'"),
        ({**INFO, "limits": None}, "'NoneType' object is not subscriptable"),
        ({**INFO, "version": None, "limits": {}}, "there is no 'max_body_bytes'"),
        ([], "expected a JSON object, got list"),
    ],
    ids=["empty", "null", "no limits", "a list"],
)
def test_an_info_that_is_none_is_told_as_such(document, missing):
    with pytest.raises(NotThisService) as raised, understanding(URL):
        info_of(json.dumps(document).encode())
    assert missing in str(raised.value)


def test_an_answer_that_is_no_json_is_shown():
    with pytest.raises(NotThisService, match="expected JSON, got '<html>'"), understanding(URL):
        info_of(b"<html>")


def test_what_is_new_in_an_answer_does_no_harm():
    new = {"new": 1}
    assert embedding_of(json.dumps({**IMAGE, **new, "weights": {**IMAGE["weights"], **new}}).encode(), b"").width == 6
    assert info_of(json.dumps({**INFO, **new}).encode()).max_objects == 3


@pytest.mark.parametrize(
    ("masks", "rles", "expected"),
    [
        ([found(0)], [rle(mask_of(3))] * 2, "zip"),
        ([found(1)], [rle(mask_of(3))], "expected masks of 1 objects, got those of 1"),
        ([found(0), found(1)], [rle(mask_of(3))] * 2, "expected masks of 1 objects, got those of 2"),
        ([{**found(0), "low_res_mask": "AAAA"}], rle(mask_of(3)), "allow_pickle"),
        ([{**found(0), "box": [1, 2, 3]}], rle(mask_of(3)), "not enough values"),
        ([found(0)], rle(mask_of(3).T), r"expected a mask of 4 x 6 pixels, got \[6, 4\]"),
    ],
    ids=["too many masks", "of another object", "too many objects", "a mask that is none", "half a box", "turned"],
)
def test_masks_that_do_not_fit_are_told_as_such(masks, rles, expected):
    body = multipart([("mask", json.dumps(rles).encode()), ("result", json.dumps({**IMAGE, "masks": masks}).encode())])
    with pytest.raises(NotThisService, match=expected), understanding(URL):
        segmentations_of("multipart/form-data; boundary=the-boundary", body, 1)


def test_a_low_res_mask_of_another_shape_is_told_as_such():
    masks = [{**found(0), "low_res_mask": low_res_mask()[:200]}]
    body = multipart(
        [("mask", json.dumps(rle(mask_of(3))).encode()), ("result", json.dumps({**IMAGE, "masks": masks}).encode())]
    )
    with pytest.raises(NotThisService), understanding(URL):
        segmentations_of("multipart/form-data; boundary=the-boundary", body, 1)


def test_a_step_without_result_is_one():
    assert step_of(b'{"done": 1, "total": 2}', None) == (1, 2, None)


def test_a_record_of_another_frame_is_told_as_such():
    wrong = {**record(2), "segmentation": rle(mask_of(2).T)}
    line = json.dumps({"done": 1, "total": 1, "result": {**IMAGE, "masks": [wrong]}}).encode()
    with pytest.raises(NotThisService, match="expected a mask of 4 x 6 pixels"), understanding(URL):
        step_of(line, None)
