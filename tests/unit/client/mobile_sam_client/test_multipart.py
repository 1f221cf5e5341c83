"""Multipart bodies."""

from __future__ import annotations

from typing import Any

import pytest
from urllib3 import encode_multipart_formdata

from mobile_sam_client._multipart import parts
from tests.unit.client.mobile_sam_client.fake_service import multipart

TYPE = "multipart/form-data; boundary=the-boundary"
PICTURE = b"\x89PNG\r\n\x1a\n\r\n\r\n--\r\n\x00\xff\r"


def test_parts_are_what_another_library_put_in():
    fields: dict[str, Any] = {"mask": ("mask.png", PICTURE), "result": b'{"a": 1}', "empty": b""}
    body, content_type = encode_multipart_formdata(fields)
    assert parts(content_type, body) == {"mask": PICTURE, "result": b'{"a": 1}', "empty": b""}


def test_a_boundary_may_be_quoted_and_parts_keep_their_order():
    body = multipart([("second", b"2"), ("first", PICTURE)])
    assert list(parts('Multipart/Form-Data; charset=x; boundary="the-boundary"', body).items()) == [
        ("second", b"2"),
        ("first", PICTURE),
    ]


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b"{}", "expected multipart/form-data with a boundary, got application/json"),
        ("", b"{}", "got no Content-Type"),
        ("multipart/form-data", b"", "expected multipart/form-data with a boundary, got multipart/form-data"),
        (TYPE, b"", "expected a multipart body that ends, got 0 bytes"),
        (TYPE, multipart([("a", b"1")])[:-5], "expected a multipart body that ends"),
        (TYPE, b"junk\r\n" + multipart([("a", b"1")]), "expected a multipart body that ends"),
        (TYPE, b"--the-boundary\r\nA: b\r\n\r\n1\r\n--the-boundary--\r\n", "expected parts with a name"),
        (TYPE, b"--the-boundary\r\nnothing\r\n--the-boundary--\r\n", "expected parts with a name"),
    ],
    ids=["JSON", "nothing said", "no boundary", "nothing", "cut off", "junk before", "no name", "no blank line"],
)
def test_what_is_no_such_body_is_refused(content_type, body, expected):
    with pytest.raises(ValueError, match=expected):
        parts(content_type, body)
