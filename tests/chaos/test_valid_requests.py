"""Valid requests of the chaos scenarios: they cover all paths, and reach the model."""

from typing import Any

import pytest

from orchestrator.costs import Workload
from tests.chaos.tool_requests import TOOL_PATHS
from tests.chaos.valid_requests import COSTLIEST, FIELDS, NOISE, valid_request
from tests.fuzz.entry_points import MODELS
from tests.unit.utils.integrations.replay import Replay
from utils.api.request_body import parse_body
from utils.app import WORK_PATHS
from utils.integrations import ADAPTERS
from utils.settings import Settings

SMALL = {"size": (64, 48), "nested": 0}
"""Options that make a costly request cheap enough for a test."""
SOURCES = ["known", "by id", "new"]
VARIANTS = {
    "cheapest": {},
    "others": {
        "multimask_output": True,
        "mask_format": "polygon",
        "segmented_image": "cutout",
        "low_res_mask": True,
        "mask_input": True,
        "task": "everything",
        "format": "binary",
        "points": 16,
        "crop_n_layers": 3,
        "crop_overlap_ratio": 1.0,
        "min_mask_region_area": 10**9,
        "thresholds": 0.0,
        "progress": True,
        "content": "noise",
        "file_format": "PNG",
        "objects": 256,
        "points_per_side": 64,
    },
}
each_source = pytest.mark.parametrize("image_source", SOURCES)
each_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def test_requests_cover_every_path_that_works():
    handlers: dict[str, Any] = {}
    for adapter in ADAPTERS:
        handlers |= {path: work for path, work in adapter.work.items() if work != {}}
    assert {*FIELDS} == WORK_PATHS
    assert {handlers[path] for path in TOOL_PATHS} == {*handlers.values()}
    assert {path for path, _ in COSTLIEST} == {*FIELDS, *TOOL_PATHS}


def check_reaches_the_model(path, options):
    (adapter,) = (adapter for adapter in ADAPTERS if path in adapter.work)
    replay, request = Replay(adapter), valid_request(path, **options)
    answer = replay.post(path, content=request.body, headers=dict(request.headers))
    assert replay.calls or path == "/label-studio/setup", answer.text


@each_source
@each_variant
@pytest.mark.parametrize("path", TOOL_PATHS)
def test_request_of_a_tool_reaches_the_model(path, options, image_source):
    check_reaches_the_model(path, {**options, **SMALL, "image_source": image_source})


@each_source
@each_variant
@pytest.mark.parametrize("path", FIELDS)
def test_request_of_the_service_is_valid(path, options, image_source):
    request = valid_request(path, **{**options, **SMALL, "image_source": image_source})
    fields = parse_body(request.body or b"", MODELS[path.strip("/")])
    source = "image_id" if image_source == "by id" else "input_image"
    assert fields.model_fields_set & {"input_image", "image_id"} == {source}


@pytest.mark.parametrize(("path", "options"), COSTLIEST)
def test_costliest_requests_are_valid(path, options):
    if path in TOOL_PATHS:
        check_reaches_the_model(path, {**options, **SMALL})
    else:
        request = valid_request(path, **{**options, **SMALL})
        parse_body(request.body or b"", MODELS[path.strip("/")])


def test_noise_is_not_refused_for_its_work():
    width, height = NOISE["size"]
    objects, points = NOISE["objects"], NOISE["objects"] * NOISE["points"]
    for mask_format, style in (("rle", "overlay"), ("polygon", "none")):
        counts = {"objects": objects, "masks": objects, "points": points}
        workload = Workload(**counts, mask_format=mask_format, style=style)
        workload.check((height, width), Settings().max_answer_bytes)
        assert workload.is_costly(width * height)
