"""Parsing of multipart bodies."""

from __future__ import annotations

from typing import Any

import pytest
from urllib3 import encode_multipart_formdata

from mobile_sam_client._multipart import parse_multipart
from tests.unit.client.mobile_sam_client.fake_service import multipart

TYPE = "multipart/form-data; boundary=the-boundary"
PICTURE = b"\x89PNG\r\n\x1a\n\r\n\r\n--\r\n\x00\xff\r"


def test_body_encoded_by_urllib3_is_parsed():
    fields: dict[str, Any] = {"mask": ("mask.png", PICTURE), "result": b'{"a": 1}', "empty": b""}
    body, content_type = encode_multipart_formdata(fields)
    assert parse_multipart(content_type, body) == {"mask": PICTURE, "result": b'{"a": 1}', "empty": b""}


def test_boundary_may_be_quoted_and_order_is_kept():
    body = multipart([("second", b"2"), ("first", PICTURE)])
    assert list(parse_multipart('Multipart/Form-Data; charset=x; boundary="the-boundary"', body).items()) == [
        ("second", b"2"),
        ("first", PICTURE),
    ]


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
def test_malformed_body_is_rejected(content_type, body, expected):
    with pytest.raises(ValueError, match=expected):
        parse_multipart(content_type, body)
