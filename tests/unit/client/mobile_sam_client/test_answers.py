"""Parsing of answers: multipart bodies, problem documents, malformed answers."""

from typing import Any

import pytest
from urllib3 import encode_multipart_formdata

from mobile_sam_client import NotThisService, Prompt
from mobile_sam_client._answers import parse_multipart, parse_retry_after
from tests.unit.client.mobile_sam_client import fake_service as fake
from tests.unit.client.mobile_sam_client.fake_service import (
    make_reply,
    mask_result,
    multipart,
    segment_reply,
)

TYPE = "multipart/form-data; boundary=the-boundary"
PICTURE = b"\x89PNG\r\n\x1a\n\r\n\r\n--\r\n\x00\xff\r"
MASK = mask_result(0)


def test_body_encoded_by_urllib3_is_parsed():
    fields: dict[str, Any] = {"mask": ("mask.png", PICTURE), "result": b'{"a": 1}', "empty": b""}
    body, content_type = encode_multipart_formdata(fields)
    assert parse_multipart(content_type, body) == {
        "mask": PICTURE,
        "result": b'{"a": 1}',
        "empty": b"",
    }


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (
            "application/json",
            b"{}",
            "expected multipart/form-data with a boundary, got application/json",
        ),
        (TYPE, b"", "expected a multipart body with a closing boundary, got 0 bytes"),
        (TYPE, multipart([("a", b"1")])[:-5], "expected a multipart body with a closing boundary"),
        (
            TYPE,
            b"junk\r\n" + multipart([("a", b"1")]),
            "expected a multipart body with a closing boundary",
        ),
        (
            TYPE,
            b"--the-boundary\r\nA: b\r\n\r\n1\r\n--the-boundary--\r\n",
            "a part of the multipart body has no name",
        ),
    ],
)
def test_malformed_multipart_body_is_rejected(content_type, body, expected):
    with pytest.raises(ValueError, match=expected):
        parse_multipart(content_type, body)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(" 3 ", 3.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("²", None)],
)
def test_retry_after_is_parsed_if_it_is_seconds(header, seconds):
    assert parse_retry_after(header) == seconds


FOREIGN = (
    "{url} is not a MobileSAM service: expected 200 or application/problem+json, got 502 with "
)
FOREIGN += "text/html: <h1>Bad Gateway</h1>"


@pytest.mark.parametrize(
    ("content_type", "status", "body", "message"),
    [
        *[
            (
                "application/problem+json",
                422,
                body,
                "{url} answered 422 with a malformed problem document",
            )
            for body in (b"{", b"[]", b'{"errors": [5]}')
        ],
        (
            "text/html",
            308,
            b"",
            "{url} answered 308, a redirect to https://a.example/: use that URL instead",
        ),
        ("text/html", 502, b"<h1>Bad\tGateway</h1>\n<hr>\n", FOREIGN),
    ],
)
def test_foreign_error_is_described_in_one_line(  # noqa: PLR0917
    client, service, content_type, status, body, message
):
    service.reply_with(make_reply(body, content_type, status, Location="https://a.example/"))
    with pytest.raises(NotThisService) as raised:
        client.info()
    assert str(raised.value) == message.format(url=f"{fake.URL}/info")


TRANSPOSED = fake.rle(fake.mask_with_area(3).T)
TRANSPOSED_RECORD = {
    "result": {**fake.IMAGE, "masks": [{**fake.record(2), "segmentation": TRANSPOSED}]}
}


@pytest.mark.parametrize(
    ("call", "reply", "reason"),
    [
        ("info", fake.json_reply({}), "'limits' is missing"),
        ("info", fake.json_reply([]), "expected a JSON object, got list"),
        ("segment", segment_reply(picture=b"no picture"), "segmented_image is not a PNG file"),
        ("segment", segment_reply([MASK, mask_result(1)]), r".*objects 0 to 0, got \[0, 1\]"),
        ("segment", segment_reply([{**MASK, "low_res_mask": "AAAA"}]), ".*allow_pickle"),
        ("segment", segment_reply([{**MASK, "box": [1, 2, 3]}]), "not enough values"),
        (
            "segment",
            segment_reply(rles=TRANSPOSED),
            r"expected a mask of 4 x 6 pixels, got \[6, 4\]",
        ),
        ("everything", make_reply(b"<html>\n", "text/html"), "expected JSON, got '<html>'"),
        (
            "everything",
            fake.lines_reply({**fake.final_line(), **TRANSPOSED_RECORD}),
            "expected a mask of 4 x 6 pixels",
        ),
    ],
)
def test_malformed_answer_is_reported(client, service, call, reply, reason):
    service.reply_with(reply)
    with pytest.raises(NotThisService, match=f"^{fake.URL}.* sent an unexpected answer: {reason}"):
        getattr(client, call)(*(() if call == "info" else (fake.FILE,)))


def test_each_result_names_its_own_clipped_fields_and_those_of_the_request(make, service):
    masks = [mask_result(number) for number in range(3)]
    clipped = ["prompts[0].box", "prompts[2].pos_coords[0]", "prompts[2].neg_coords[1]", "region"]
    service.replies = [segment_reply(masks, clipped=clipped)]
    found = make(service).segment_many(b"image", [Prompt(box=[0, 0, 2, 2])] * 3, clip=True)
    assert service.fields[0]["clip"] is True
    assert [each.clipped for each in found] == [
        ("box", "region"),
        ("region",),
        ("pos_coords[0]", "neg_coords[1]", "region"),
    ]


@pytest.mark.parametrize("options", [{}, {"clip": None}])
def test_clip_is_sent_only_if_it_is_set(make, service, options):
    assert make(service).segment(b"image", box=[0, 0, 2, 2], **options).clipped == ()
    assert "clip" not in service.fields[0]
