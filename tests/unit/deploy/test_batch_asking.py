"""Segmentation of one image of a batch: rows, and errors that stop the batch."""

from __future__ import annotations

import asyncio
import hashlib
import re

import httpx
import pytest

from deploy.ray.asking import Segmenter
from deploy.ray.todo import BatchError, Image, canonical_request
from mobile_sam_client import AsyncClient
from tests.unit.client.mobile_sam_client import fake_service as fake

EVERYTHING = Image("/p/a.jpg", 10, 20, canonical_request({"everything": {"points_per_side": 8}}))
BOXES = Image("/p/a.jpg", 10, 20, canonical_request({"prompts": [{"box": [0, 0, 3, 1]}] * 3}))
REACHABLE = fake.json_reply(fake.INFO)
TWO = fake.segment_reply([fake.mask_result(0), fake.mask_result(1)], [fake.rle(fake.mask_with_area(3))] * 2)


def segment(image, *replies, read=lambda _: fake.FILE, weights=fake.WEIGHTS["sha256"], max_prompts=2):
    """Return the row of an image, and the requests to the service."""
    service = fake.FakeService()
    service.reply_with(*replies)

    async def run():
        async with AsyncClient(fake.URL, transport=httpx.MockTransport(service), retries=0) as client:
            return await Segmenter(client, weights, max_prompts).row(image, read)

    return asyncio.run(run()), service.requests


def test_everything_becomes_a_row():
    row, requests = segment(EVERYTHING, fake.lines_reply(fake.final_line(3, 5)))
    assert requests[0].fields["points_per_side"] == 8
    masks = row.pop("masks")
    assert row == {
        **EVERYTHING._asdict(),
        "sha256": hashlib.sha256(fake.FILE).hexdigest(),
        "weights": fake.WEIGHTS["sha256"],
        "width": 6,
        "height": 4,
    }
    assert masks[0] == {
        **fake.rle(fake.mask_with_area(3)),
        "area": 3,
        "bbox": (0, 0, 3, 1),
        "score": 0.9,
        "stability_score": 0.8,
        "point": (1.5, 0.5),
    }
    assert [mask["area"] for mask in masks] == [3, 5]


def test_prompts_are_split_into_requests_of_the_maximum_size():
    row, requests = segment(BOXES, TWO, fake.segment_reply())
    assert [len(request.fields["prompts"]) for request in requests] == [2, 1]
    assert [(mask["prompt"], mask["bbox"], mask["score"]) for mask in row["masks"]] == [
        (number, (0, 0, 3, 1), 0.5) for number in range(3)
    ]


def test_file_is_read_once():
    paths = []

    def read(path):
        paths.append(path)
        return fake.FILE

    segment(
        BOXES,
        fake.segment_reply([fake.mask_result(0), fake.mask_result(1)], [fake.rle(fake.mask_with_area(3))] * 2),
        fake.segment_reply(),
        read=read,
    )
    assert paths == ["/p/a.jpg"]


def cannot_read(_):
    raise FileNotFoundError(2, "No such file or directory", "/p/a.jpg")


def with_prompts(*prompts):
    return EVERYTHING._replace(asked=canonical_request({"prompts": prompts}))


@pytest.mark.parametrize(
    ("image", "replies", "read", "error"),
    [
        (EVERYTHING, [REACHABLE], cannot_read, "No such file or directory"),
        (EVERYTHING, [fake.problem_reply(422, "invalid-image", "no image")], None, "422 invalid-image: no image .*"),
        (
            EVERYTHING,
            [fake.failing_reply(httpx.ReadError, "gone"), REACHABLE],
            None,
            r"the connection .* was lost \(gone\)",
        ),
        (with_prompts({"circle": 1}), [REACHABLE], None, ".* unexpected keyword argument 'circle'"),
        (with_prompts({"box": [1]}), [REACHABLE], None, r"prompts\[0\].box: expected four numbers, .*"),
        (with_prompts(), [REACHABLE], None, "prompts: expected at least one object, got none"),
    ],
    ids=["no file", "no image", "connection lost", "no such field", "no box", "no prompts"],
)
def test_image_that_cannot_be_done_is_a_row_with_its_error(image, replies, read, error):
    row, _ = segment(image, *replies, **({"read": read} if read else {}))
    assert re.fullmatch(error, row["error"])
    assert row["masks"] is None


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([fake.problem_reply(401, "unauthorized", "no key")], "set MOBILE_SAM_API_KEY where Ray is started"),
        ([fake.failing_reply(httpx.ConnectError, "refused")], "run the same command to resume"),
        (
            [fake.lines_reply(fake.final_line(3))],
            "expected answers from weights other, got one from 000000000000",
        ),
    ],
    ids=["rejected key", "unreachable", "other weights"],
)
def test_service_errors_stop_the_batch(replies, message):
    with pytest.raises(BatchError, match=message):
        segment(EVERYTHING, *replies, weights="other" if "weights" in message else fake.WEIGHTS["sha256"])
