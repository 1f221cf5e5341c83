"""The header `X-Image-Id`: well-formed on requests that work, and about an image of a list."""

import asyncio
import base64
import hashlib

import pytest

from tests.http.asgi import messages_of

FILES = [b"\xff\xd8 one", b"\xff\xd8 two"]
IDS = [hashlib.sha256(file).hexdigest() for file in FILES]
LIST = {"images": [base64.b64encode(file).decode() for file in FILES]}
OTHER = "0" * 64


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([b"a" * 63], id="short"),
        pytest.param([b"A" * 64], id="upper-case"),
        pytest.param([b""], id="empty"),
        pytest.param([b"a" * 64] * 2, id="two"),
        pytest.param([b"a" * 64 + b", " + b"a" * 64], id="merged"),
        pytest.param([b"\xe9" * 64], id="not-ascii"),
    ],
)
def test_header_that_is_not_one_sha256_is_refused_wherever_an_image_is(app, segmenter, sent):
    headers = [(b"x-image-id", value) for value in sent]
    paths = [
        "/mobile_sam",
        "/embed",
        "/everything",
        "/api/function_invocations",
        "/sam2/segment_image",
    ]
    for path, method in [*((path, "POST") for path in paths), (f"/embeddings/{OTHER}", "GET")]:
        start, body, *_ = asyncio.run(messages_of(app, path, headers=headers, method=method))
        assert start["status"] == 422
        assert (
            b"X-Image-Id: expected one SHA-256 of an image file, 64 lower-case hexadecimal digits"
            in body["body"]
        )
    assert segmenter.calls == []
    for path in ("/info", "/livez", "/ui"):
        assert (
            asyncio.run(messages_of(app, path, headers=headers, method="GET"))[0]["status"] == 200
        )


@pytest.mark.parametrize("fields", [LIST, {"image_ids": IDS}], ids=["files", "ids"])
def test_header_beside_a_list_names_one_of_its_images_and_another_one_is_ignored_with_its_job(
    http, segmenter, fields
):
    refused = http.post("/embed", json=fields, headers={"X-Image-Id": OTHER})
    assert refused.status_code == 422
    expected = f"the SHA-256 of one of the images, such as {IDS[0]}"
    assert refused.json()["errors"] == [{"field": "X-Image-Id", "expected": expected, "got": OTHER}]
    assert segmenter.calls == []
    accepted = http.post("/embed", json=fields, headers={"X-Image-Id": IDS[1]})
    assert accepted.status_code == 202
    job = http.request("DELETE", f"/embed/{accepted.json()['job']}", headers={"X-Image-Id": OTHER})
    assert (job.status_code, job.json()["cancelled"]) == (200, 2)
    malformed = http.request(
        "GET", f"/embed/{accepted.json()['job']}", headers={"X-Image-Id": "an id"}
    )
    assert (malformed.status_code, malformed.json()["errors"][0]["got"]) == (422, "'an id'")
