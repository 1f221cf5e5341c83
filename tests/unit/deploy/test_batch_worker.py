"""Parts of a batch: rows of images, errors that stop the batch, and parts that exist already."""

import hashlib
import inspect
import json
import re
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from deploy.ray.errors import BatchError
from deploy.ray.plan import Image
from deploy.ray.worker import Worker
from mobile_sam_client import AsyncClient, Weights
from tests.unit.client.mobile_sam_client import fake_service as fake

EVERYTHING = Image("/p/a.jpg", 10, 20, '{"everything":{"points_per_side":8}}')
REACHABLE = fake.json_reply(fake.INFO)
WEIGHTS = Weights(**fake.WEIGHTS)


class FakeResults:
    """Results in memory."""

    def __init__(self):
        self.parts: dict[str, Any] = {}
        self.write = self.parts.__setitem__


def make_worker(*replies, read=lambda _: fake.FILE, weights=WEIGHTS):
    """Return a worker and the service that it asks, after its answer to `GET /info`: at most two
    prompts.
    """
    service = fake.FakeService()
    limits = {**fake.INFO["limits"], "max_objects": 2}
    service.reply_with(
        fake.json_reply({**fake.INFO, "weights": asdict(weights), "limits": limits}), *replies
    )
    connect = partial(AsyncClient, fake.URL, transport=httpx.MockTransport(service), retries=0)
    results: Any = FakeResults()
    return Worker(connect, weights, 4, read, results), service


def with_prompts(*prompts):
    return EVERYTHING._replace(asked=json.dumps({"prompts": prompts}))


def segment(image, *replies, **options):
    """Return the row of an image, and the fields of the requests to the service."""
    worker, service = make_worker(*replies, **options)
    assert worker.process("part-1", [image]) == (1, "")
    ((row,),) = worker.results.parts.values()
    return row, service.fields


def test_everything_becomes_a_row():
    row, requests = segment(EVERYTHING, fake.lines_reply(fake.final_line(3, 5)))
    assert requests[0]["points_per_side"] == 8
    masks = row.pop("masks")
    sha256 = hashlib.sha256(fake.FILE).hexdigest()
    frame = {"width": 6, "height": 4, "error": None}
    assert row == {**EVERYTHING._asdict(), "sha256": sha256, "weights": WEIGHTS.sha256, **frame}
    assert masks[0] == {
        **fake.rle(fake.mask_with_area(3)),
        "area": 3,
        "bbox": [0, 0, 3, 1],
        "score": 0.9,
        "stability_score": 0.8,
        "point": (1.5, 0.5),
    }
    assert [mask["area"] for mask in masks] == [3, 5]


def test_prompts_are_split_into_requests_of_the_maximum_size():
    mask = {**fake.mask_result(0), "box": [1, 1, 4, 2]}
    two = fake.segment_reply([mask, {**mask, "object": 1}], [fake.rle(fake.mask_with_area(3))] * 2)
    row, requests = segment(
        with_prompts(*[{"box": [0, 0, 3, 1]}] * 3), two, fake.segment_reply([mask])
    )
    assert [len(fields["prompts"]) for fields in requests] == [2, 1]
    assert [(found["prompt"], found["bbox"], found["score"]) for found in row["masks"]] == [
        (number, [1, 1, 3, 1], 0.5) for number in range(3)
    ]


def test_objects_of_a_data_set_keep_class_and_fields():
    shapes = [[0, 0, 3, 1], [9, 9, 12, 12], [2, 2]]
    objects = [["cat", {"id": 7}], ["dog", {"id": 8}], ["cat", {"id": 9}]]
    request = {"shapes": shapes, "relative": False, "size_wh": [6, 4], "objects": objects}
    two = fake.segment_reply([fake.mask_result(number) for number in (0, 1)])
    image = EVERYTHING._replace(asked=json.dumps(request))
    row, requests = segment(image, two, read=lambda _: fake.png())
    assert requests[0]["prompts"] == [{"box": [0, 0, 3, 1]}, {"pos_coords": [[2, 2]]}]
    found = [
        (mask["class"], mask["fields"], mask.get("area"), mask.get("box_iou"), mask["note"])
        for mask in row["masks"]
    ]
    assert found == [
        ("cat", '{"id": 7}', 3, 1.0, ""),
        ("dog", '{"id": 8}', None, None, "outside of the image"),
        ("cat", '{"id": 9}', 3, None, ""),
    ]
    assert row["masks"][0]["counts"] == fake.rle(fake.mask_with_area(3))["counts"]
    row, requests = segment(
        image._replace(asked=json.dumps({**request, "shapes": [[9, 9]] * 3})),
        read=lambda _: fake.png(),
    )
    assert (row["width"], len(row["masks"]), requests) == (6, 3, [])


cannot_read = Mock(side_effect=FileNotFoundError(2, "No such file or directory", "/p/a.jpg"))


@pytest.mark.parametrize(
    ("image", "replies", "options", "error"),
    [
        (EVERYTHING, [], {"read": cannot_read}, "No such file or directory"),
        (
            EVERYTHING,
            [fake.problem_reply(422, "invalid-image", "no image")],
            {},
            "422 invalid-image: no image .*",
        ),
        (
            EVERYTHING,
            [fake.failing_reply(httpx.ReadError, "gone"), REACHABLE],
            {},
            r"the connection .* lost \(gone\)",
        ),
    ],
    ids=["no file", "no image", "connection lost"],
)
def test_failed_image_becomes_a_row_with_its_error(image, replies, options, error):
    row, _ = segment(image, *replies, **options)
    assert re.fullmatch(error, row["error"])
    assert row.get("masks") is None


@pytest.mark.parametrize(
    ("reply", "weights", "message"),
    [
        (
            fake.problem_reply(401, "unauthorized", "no key"),
            WEIGHTS,
            "set the API key in MOBILE_SAM_API_KEY",
        ),
        (fake.failing_reply(httpx.ConnectError, "refused"), WEIGHTS, "cannot connect to "),
        (
            fake.lines_reply(fake.final_line(3)),
            replace(WEIGHTS, sha256="1" * 64),
            "with other weights",
        ),
    ],
    ids=["rejected key", "unreachable", "other weights"],
)
def test_service_error_stops_the_batch(reply, weights, message):
    worker, _ = make_worker(reply, weights=weights)
    _, error = worker.process("part-1", [EVERYTHING])
    assert message in error
    assert not worker.results.parts


def test_part_that_cannot_be_written_stops_the_batch():
    worker, _ = make_worker(read=cannot_read)
    worker.results.write = Mock(
        side_effect=BatchError("cannot write part.parquet: No space left on device")
    )
    assert worker.process("part-1", [EVERYTHING]) == (
        0,
        "cannot write part.parquet: No space left on device",
    )


def test_worker_has_no_coroutines():
    """Ray would run `process`, which starts an event loop, in one."""
    assert not inspect.getmembers(Worker, inspect.iscoroutinefunction)
