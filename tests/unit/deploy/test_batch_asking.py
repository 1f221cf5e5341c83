"""What becomes of one image of a batch: a row, whatever happens, or the end of the batch."""

from __future__ import annotations

import asyncio
import hashlib
import re

import httpx
import pytest

from deploy.ray.asking import Asker
from deploy.ray.todo import BatchError, Image, question
from mobile_sam_client import AsyncClient
from tests.unit.client.mobile_sam_client import fake_service as fake

EVERYTHING = Image("/p/a.jpg", 10, 20, question({"everything": {"points_per_side": 8}}))
BOXES = Image("/p/a.jpg", 10, 20, question({"prompts": [{"box": [0, 0, 3, 1]}] * 3}))
HERE = fake.says_json(fake.INFO)
TWO = fake.segments([fake.found(0), fake.found(1)], [fake.rle(fake.mask_of(3))] * 2)


def ask(image, *replies, read=lambda _: fake.FILE, weights=fake.WEIGHTS["sha256"], most=2):
    """The row of an image, and what the service was asked."""
    service = fake.Service()
    service.says(*replies)

    async def run():
        async with AsyncClient(fake.URL, transport=httpx.MockTransport(service), retries=0) as client:
            return await Asker(client, weights, most).row(image, read)

    return asyncio.run(run()), service.asked


def test_everything_on_an_image_becomes_a_row():
    row, asked = ask(EVERYTHING, fake.says_lines(fake.last(3, 5)))
    assert asked[0].fields["points_per_side"] == 8
    masks = row.pop("masks")
    assert row == {
        **EVERYTHING._asdict(),
        "sha256": hashlib.sha256(fake.FILE).hexdigest(),
        "weights": fake.WEIGHTS["sha256"],
        "width": 6,
        "height": 4,
    }
    assert masks[0] == {
        **fake.rle(fake.mask_of(3)),
        "area": 3,
        "bbox": (0, 0, 3, 1),
        "score": 0.9,
        "stability_score": 0.8,
        "point": (1.5, 0.5),
    }
    assert [mask["area"] for mask in masks] == [3, 5]


def test_prompts_go_in_requests_of_as_many_as_the_service_takes():
    row, asked = ask(BOXES, TWO, fake.segments())
    assert [len(one.fields["prompts"]) for one in asked] == [2, 1]
    assert [(mask["prompt"], mask["bbox"], mask["score"]) for mask in row["masks"]] == [
        (number, (0, 0, 3, 1), 0.5) for number in range(3)
    ]


def test_file_is_read_once():
    read = []

    def reading(path):
        read.append(path)
        return fake.FILE

    ask(
        BOXES,
        fake.segments([fake.found(0), fake.found(1)], [fake.rle(fake.mask_of(3))] * 2),
        fake.segments(),
        read=reading,
    )
    assert read == ["/p/a.jpg"]


def cannot_read(_):
    raise FileNotFoundError(2, "No such file or directory", "/p/a.jpg")


def prompting(*prompts):
    return EVERYTHING._replace(asked=question({"prompts": prompts}))


@pytest.mark.parametrize(
    ("image", "replies", "read", "error"),
    [
        (EVERYTHING, [HERE], cannot_read, "No such file or directory"),
        (EVERYTHING, [fake.refuses(422, "invalid-image", "no image")], None, "422 invalid-image: no image .*"),
        (EVERYTHING, [fake.fails(httpx.ReadError, "gone"), HERE], None, r"the connection to .* was lost \(gone\)"),
        (prompting({"circle": 1}), [HERE], None, ".* unexpected keyword argument 'circle'"),
        (prompting({"box": [1]}), [HERE], None, r"prompts\[0\].box: expected four numbers, .*"),
        (prompting(), [HERE], None, "prompts: expected at least one object to find, got none"),
    ],
    ids=["no file", "no image", "connection lost", "no such field", "no box", "no prompts"],
)
def test_image_that_cannot_be_done_is_a_row_with_its_error(image, replies, read, error):
    row, _ = ask(image, *replies, **({"read": read} if read else {}))
    assert re.fullmatch(error, row["error"])
    assert row["masks"] is None


@pytest.mark.parametrize(
    ("replies", "message"),
    [
        ([fake.refuses(401, "unauthorized", "no key")], "set MOBILE_SAM_API_KEY wherever Ray was started"),
        ([fake.fails(httpx.ConnectError, "refused")], "the same command goes on from there"),
        ([fake.says_lines(fake.last(3))], "expected answers of the weights other alone, got one of 000000000000"),
    ],
    ids=["no key", "no service", "other weights"],
)
def test_what_no_image_is_at_fault_for_ends_the_batch(replies, message):
    with pytest.raises(BatchError, match=message):
        ask(EVERYTHING, *replies, weights="other" if "weights" in message else fake.WEIGHTS["sha256"])
