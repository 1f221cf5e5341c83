"""Prompts that lie partly outside the image: refused, or cut to the image."""

import json
from typing import Any

import numpy as np
import pytest
import requests

from tests.e2e.answers import NPY_ONLY, problem, segmentation
from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e

FILE = scene(31)
WIDTH, HEIGHT = 480, 320


def test_detectors_boxes_are_cut_to_the_image_and_named(server):
    outside = [
        {"box": [-1, 20, 200, HEIGHT + 1.5]},
        {"box": [30, 30, 90, 90]},
        {"pos_coords": [[WIDTH + 1, 99]]},
    ]
    inside = [
        {"box": [0, 20, 200, HEIGHT]},
        {"box": [30, 30, 90, 90]},
        {"pos_coords": [[WIDTH, 99]]},
    ]
    image = {"input_image": as_base64(FILE), **NPY_ONLY}
    refused = problem(server.post(**image, prompts=outside))
    assert [error["field"] for error in refused["errors"]] == [
        "prompts[0].box",
        "prompts[0].box",
        "prompts[2].pos_coords[0]",
    ]
    assert all(error["expected"].endswith(', or send "clip": true') for error in refused["errors"])
    clipped = segmentation(server.post(**image, prompts=outside, clip=True))
    exact = segmentation(server.post(**image, prompts=inside, clip=True))
    assert clipped.result["clipped"] == ["prompts[0].box", "prompts[2].pos_coords[0]"]
    assert "clipped" not in exact.result
    np.testing.assert_array_equal(clipped.masks, exact.masks)
    assert clipped.masks.any()


def test_box_without_a_part_in_the_image_is_a_422_all_the_same(server):
    image = {"input_image": as_base64(FILE), **NPY_ONLY}
    refused = problem(server.post(**image, box=[WIDTH, 0, WIDTH + 50, 50], clip=True))
    assert refused["errors"] == [
        {
            "field": "box",
            "expected": f"a box with a part inside the image of {WIDTH} x {HEIGHT} pixels",
            "got": f"[{WIDTH}, 0, {WIDTH + 50}, 50]",
        }
    ]


def test_region_and_costly_requests_are_clipped_too(server):
    image = {"input_image": as_base64(FILE), **NPY_ONLY}
    found = segmentation(
        server.post(**image, box=[-5, -5, 60, 60], region=[-9, -9, 128, 128], clip=True)
    )
    assert (found.result["region"], found.result["clipped"]) == (
        [0, 0, 128, 128],
        ["box", "region"],
    )
    many = [{"box": [-1, 4, 60 + number, 80]} for number in range(20)]
    found = segmentation(server.post(**image, prompts=many, clip=True))
    assert found.result["clipped"] == [f"prompts[{number}].box" for number in range(20)]


def test_query_of_a_form_is_honoured(server):
    files: dict[str, Any] = {
        "image": FILE,
        "request": (None, json.dumps({"box": [-1, 20, 200, 300]})),
    }
    answer = requests.post(
        f"{server.url}/mobile_sam?clip=true&mask_format=polygon",
        files=files,
        headers={"Accept": "application/json"},
        timeout=60,
    )
    assert answer.status_code == 200
    document = answer.json()
    assert document["clipped"] == ["box"]
    assert document["masks"][0]["polygon"]
    few = requests.post(
        f"{server.url}/everything?points_per_side=2&progress=true",
        files={"image": FILE},
        timeout=60,
    )
    assert few.headers["Content-Type"] == "application/x-ndjson"
    steps = [json.loads(line) for line in few.text.splitlines()]
    assert steps[0] == {"done": 0, "total": 1}
    wrong = requests.post(f"{server.url}/everything?points_per_sid=3", files=files, timeout=60)
    assert (
        problem(wrong)["errors"][0]["got"]
        == "an unknown query parameter (did you mean points_per_side?)"
    )
