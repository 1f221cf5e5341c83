"""Workloads of the measurements."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from benchmarks.arms import Arm
from benchmarks.load import Request
from benchmarks.photo import POINTS, SIZE, photo
from benchmarks.workloads import CACHED, COLD, MIXED, Clicks, is_new, new_images


class Recorder(Arm):
    """Arm whose request body is the image, or `id`."""

    def __init__(self, takes_image_ids):
        self.takes_image_ids = takes_image_ids

    def click(self, image, point):
        return Request("/", {}, image if isinstance(image, bytes) else b"id")

    def read(self, body, headers):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("workload", "count", "expected"), [(COLD, 7, 7), (CACHED, 7, 0), (MIXED, 7, 2), (MIXED, 10, 2)]
)
def test_new_images_counts_the_new_images_of_a_workload(workload, count, expected):
    assert new_images(workload, count) == expected
    assert sum(is_new(workload, index) for index in range(count)) == expected


def test_new_images_differ_from_each_other_and_from_earlier_runs():
    arm = Recorder(takes_image_ids=True)
    bodies = [request.body for _ in range(2) for request in Clicks().of(COLD, arm, 10)]
    assert len(set(bodies)) == 20


def test_known_image_is_named_by_id_if_the_server_supports_it():
    assert [request.body for request in Clicks().of(CACHED, Recorder(takes_image_ids=True), 2)] == [b"id", b"id"]
    assert Clicks().of(CACHED, Recorder(takes_image_ids=False), 1)[0].body == photo()


def test_clicks_are_on_the_photo():
    with Image.open(io.BytesIO(photo())) as image:
        assert (image.format, image.size) == ("JPEG", SIZE)
    assert len(set(POINTS)) == len(POINTS)
    assert all(0 <= x < SIZE[0] and 0 <= y < SIZE[1] for x, y in POINTS)
