"""Parsing of answers: multipart bodies, problem documents, malformed answers."""

import json
from typing import Any

import pytest
from urllib3 import encode_multipart_formdata

from mobile_sam_client import NotThisService, Problem
from mobile_sam_client._answers import parse_multipart, parse_retry_after
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    INFO,
    final_line,
    json_reply,
    lines_reply,
    low_res_mask,
    make_reply,
    mask_result,
    mask_with_area,
    multipart,
    record,
    rle,
    segment_reply,
)

URL = "http://127.0.0.1:3000"
TYPE = "multipart/form-data; boundary=the-boundary"
PICTURE = b"\x89PNG\r\n\x1a\n\r\n\r\n--\r\n\x00\xff\r"
MASK = mask_result(0)


def test_body_encoded_by_urllib3_is_parsed():
    fields: dict[str, Any] = {"mask": ("mask.png", PICTURE), "result": b'{"a": 1}', "empty": b""}
    body, content_type = encode_multipart_formdata(fields)
    assert parse_multipart(content_type, body) == {"mask": PICTURE, "result": b'{"a": 1}', "empty": b""}


def test_boundary_may_be_quoted_and_order_is_kept():
    body = multipart([("second", b"2"), ("first", PICTURE)])
    parts = parse_multipart('Multipart/Form-Data; charset=x; boundary="the-boundary"', body)
    assert list(parts.items()) == [("second", b"2"), ("first", PICTURE)]


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b"{}", "expected multipart/form-data with a boundary, got application/json"),
        ("", b"{}", "got no Content-Type"),
        ("multipart/form-data", b"", "expected multipart/form-data with a boundary, got multipart/form-data"),
        (TYPE, b"", "expected a multipart body with a closing boundary, got 0 bytes"),
        (TYPE, multipart([("a", b"1")])[:-5], "expected a multipart body with a closing boundary"),
        (TYPE, b"junk\r\n" + multipart([("a", b"1")]), "expected a multipart body with a closing boundary"),
        (TYPE, b"--the-boundary\r\nA: b\r\n\r\n1\r\n--the-boundary--\r\n", "a part of the multipart body has no name"),
        (TYPE, b"--the-boundary\r\nnothing\r\n--the-boundary--\r\n", "a part of the multipart body has no name"),
    ],
    ids=["JSON", "no type", "no boundary", "empty", "truncated", "preamble", "no name", "no blank line"],
)
def test_malformed_multipart_body_is_rejected(content_type, body, expected):
    with pytest.raises(ValueError, match=expected):
        parse_multipart(content_type, body)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), (" 0 ", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("1.5", None), ("²", None)],
    ids=["seconds", "zero", "date", "negative", "fraction", "not ASCII"],
)
def test_retry_after_is_parsed_if_it_is_seconds(header, seconds):
    assert parse_retry_after(header) == seconds


def test_problem_document_without_status_uses_response_status(client, service):
    document = json.dumps({"type": "about:blank", "title": "No"}).encode()
    service.reply_with(make_reply(document, "application/problem+json", 418))
    with pytest.raises(Problem, match=r"^418 blank: No \(request the-request\)$"):
        client.info()


@pytest.mark.parametrize(
    ("content_type", "status", "body", "message"),
    [
        *[
            ("application/problem+json", 422, body, "{url} answered 422 with a malformed problem document")
            for body in (b"{", b"[]", b'{"errors": [5]}', b'{"status": null}')
        ],
        ("text/html", 308, b"", "{url} answered 308, a redirect to https://a.example/: use that URL instead"),
        (
            "text/html",
            502,
            b"<h1>Bad\tGateway</h1>\n<hr>\n",
            "{url} is not a MobileSAM service: expected 200 or application/problem+json, got 502 with text/html: "
            "<h1>Bad Gateway</h1>",
        ),
    ],
    ids=["incomplete", "list", "number as field error", "null status", "redirect", "HTML"],
)
def test_foreign_error_is_described_in_one_line(client, service, content_type, status, body, message):  # noqa: PLR0917
    service.reply_with(make_reply(body, content_type, status, Location="https://a.example/"))
    with pytest.raises(NotThisService) as raised:
        client.info()
    assert str(raised.value) == message.format(url=f"{URL}/info")


def test_unknown_fields_are_ignored(client, service):
    image = {**IMAGE, "new": 1, "weights": {**IMAGE["weights"], "new": 1}}
    service.reply_with(json_reply(image), json_reply({**INFO, "new": 1}))
    assert client.embed(FILE).width == 6
    assert client.info().max_objects == 3


TRANSPOSED = rle(mask_with_area(3).T)
TWO_RLES = [rle(mask_with_area(3))] * 2


@pytest.mark.parametrize(
    ("call", "reply", "reason"),
    [
        ("info", json_reply({}), "'limits' is missing"),
        ("info", json_reply({**INFO, "limits": None}), "'NoneType' object is not subscriptable"),
        ("info", json_reply([]), "expected a JSON object, got list"),
        ("segment", make_reply(b"<html>", "text/html"), "expected multipart/form-data"),
        ("segment", segment_reply(picture=b"no picture"), "segmented_image is not a PNG file"),
        ("segment", segment_reply([]), ".*zip"),
        ("segment", segment_reply([mask_result(1)]), r"expected masks of objects 0 to 0, got \[1\]"),
        ("segment", segment_reply([MASK, mask_result(1)], TWO_RLES), r".*objects 0 to 0, got \[0, 1\]"),
        ("segment", segment_reply([{"object": 0, "score": 1}]), "'area' is missing"),
        ("segment", segment_reply([{**MASK, "low_res_mask": "AAAA"}]), ".*allow_pickle"),
        ("segment", segment_reply([{**MASK, "low_res_mask": low_res_mask()[:200]}]), ""),
        ("segment", segment_reply([{**MASK, "box": [1, 2, 3]}]), "not enough values"),
        ("segment", segment_reply(rles=TRANSPOSED), r"expected a mask of 4 x 6 pixels, got \[6, 4\]"),
        ("everything", make_reply(b"<html>\n", "text/html"), "expected JSON, got '<html>'"),
        ("everything", lines_reply({"done": 1}), "'total' is missing"),
        (
            "everything",
            lines_reply({**final_line(), "result": {**IMAGE, "masks": [{**record(2), "segmentation": TRANSPOSED}]}}),
            "expected a mask of 4 x 6 pixels",
        ),
    ],
    ids=[
        *("empty info", "null limits", "list", "HTML", "not a PNG", "no masks", "wrong object", "too many objects"),
        *("no area", "bad low_res_mask", "truncated low_res_mask", "incomplete box", "transposed mask"),
        *("streamed HTML", "no total", "transposed record"),
    ],
)
def test_malformed_answer_is_reported(client, service, call, reply, reason):
    service.reply_with(reply)
    with pytest.raises(NotThisService, match=f"^{URL}.* sent an unexpected answer: {reason}"):
        getattr(client, call)(*(() if call == "info" else (FILE,)))
