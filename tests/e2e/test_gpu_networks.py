"""The networks that GPUs run, in Triton on the CPU: answers are those of the others."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from benchmarks import gpu_plans
from harness import Server, serving
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

MAX_DIFFERENT_PIXELS = 30
"""Pixels of a mask that may differ between engines: those at its edge."""


@pytest.fixture(scope="module")
def gpu_server(
    builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run a service with the plan for a GPU on ONNX Runtime's CPU provider."""
    folder = tmp_path_factory.mktemp("gpu")
    settings = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(
            gpu_plans.write(builtin_repository, folder / "models", on_gpu=False)
        ),
        "MOBILE_SAM_MODEL_CONTROL_MODE": "poll",  # the plan stays
    }
    with serving(folder / "log", **settings) as running:
        yield running


def clicks(server: Server, image: str, **fields: Any) -> Any:
    answer = server.post("/mobile_sam", input_image=image, **{**NPY_ONLY, **fields})
    return segmentation(answer)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"pos_coords": [[240, 160]]}, id="a click"),
        pytest.param({"pos_coords": [[240, 160]], "multimask_output": True}, id="candidates"),
        pytest.param(
            {"prompts": [{"box": [100, 80, 300, 240]}, {"pos_coords": [[30, 30], [60, 50]]}]},
            id="objects",
        ),
        pytest.param({"pos_coords": [[240, 160]], "mask_threshold": 2.5}, id="a threshold"),
        pytest.param({"pos_coords": [[240, 160]], "region": [100, 60, 380, 260]}, id="a region"),
        pytest.param({"pos_coords": [[240, 160]], "region": "auto"}, id="an automatic region"),
    ],
)
def test_masks_are_those_of_the_other_networks(server, gpu_server, fields):
    image = as_base64(scene(61))
    for _ in range(2):  # a new image, and a known one
        expected, found = (clicks(running, image, **fields) for running in (server, gpu_server))
        differs = np.count_nonzero(expected.masks != found.masks)
        assert differs <= MAX_DIFFERENT_PIXELS * len(expected.result["masks"])
        for ours, theirs in zip(expected.result["masks"], found.result["masks"], strict=True):
            assert ours["score"] == pytest.approx(theirs["score"], abs=2e-3)
        for member in ("image_id", "width", "height", "region"):
            assert expected.result.get(member) == found.result.get(member)


def test_earlier_mask_is_refined(server, gpu_server):
    image, prompt = as_base64(scene(62)), {"pos_coords": [[240, 160]]}
    answers = []
    for running in (server, gpu_server):
        first = clicks(running, image, low_res_mask=True, **prompt)
        earlier = first.result["masks"][0]["low_res_mask"]
        answers.append(clicks(running, image, mask_input=earlier, **prompt).masks)
    assert np.count_nonzero(answers[0] != answers[1]) <= MAX_DIFFERENT_PIXELS


def test_automatic_masks_are_those_of_the_other_networks(server, gpu_server):
    fields = {"input_image": as_base64(scene(63)), "points_per_side": 6}
    thresholds = {"pred_iou_thresh": 0.3, "stability_score_thresh": 0.5}
    expected, found = (
        running.post("/everything", **fields, **thresholds).json()["masks"]
        for running in (server, gpu_server)
    )
    assert expected
    assert len(expected) == len(found)
    for ours, theirs in zip(expected, found, strict=True):
        assert abs(ours["area"] - theirs["area"]) <= MAX_DIFFERENT_PIXELS
        assert np.abs(np.subtract(ours["bbox"], theirs["bbox"])).max() <= 4
        for member in ("point_coords", "crop_box"):
            assert ours[member] == theirs[member]


def test_no_automatic_mask_may_reach_the_thresholds(gpu_server):
    answer = gpu_server.post(
        "/everything", input_image=as_base64(scene(64)), points_per_side=3, pred_iou_thresh=1
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["masks"] == []


def test_very_large_image_is_worked_on(server, gpu_server):
    disc = Image.new("RGB", (5760, 3840), (60, 90, 120))
    ImageDraw.Draw(disc).ellipse([2000, 1000, 3800, 2800], fill=(220, 60, 50))
    file = io.BytesIO()
    disc.save(file, "JPEG")
    expected, found = (
        clicks(running, as_base64(file.getvalue()), pos_coords=[[2880, 1920]])
        for running in (server, gpu_server)
    )
    assert expected.masks.shape == (3840, 5760)
    differs = np.count_nonzero(expected.masks != found.masks)
    assert differs <= 12**2 * MAX_DIFFERENT_PIXELS  # each pixel of before is as many now
