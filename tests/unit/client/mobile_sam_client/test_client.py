"""Public calls of `Client` and `AsyncClient`; each test runs with both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobile_sam_client import Engine, InvalidImage, Prompt, Weights
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    INFO,
    final_line,
    json_reply,
    lines_reply,
    low_res_mask,
    mask_result,
    mask_with_area,
    png,
    problem_reply,
    rle,
    segment_reply,
)

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}
SENT = {"pos_coords": [[1.0, 2.0]], "mask_format": "rle"}


def test_info_is_parsed(client, service):
    service.reply_with(json_reply(INFO))
    info = client.info()
    assert service.requests[0].path == "/info"
    assert (info.version, info.key_needed) == ("1.2.3", True)
    assert info.weights == Weights("none", "0" * 64, True, "A note.")
    assert info.engine == Engine("an encoder", "a decoder")
    assert (info.max_body_bytes, info.max_image_pixels, info.max_objects) == (1000, 2000, 3)
    assert info.model_versions == (1, 3)


def test_info_without_weights_is_parsed(client, service):
    service.reply_with(json_reply({**INFO, "weights": None}))
    assert client.info().weights is None


def test_embed_uploads_and_keeps_the_file(client, service):
    service.reply_with(json_reply(IMAGE))
    embedding = client.embed(FILE)
    assert service.requests[0].path == "/embed"
    assert service.images == [FILE]
    assert (embedding.image_id, embedding.width, embedding.height, embedding.file) == ("the id", 6, 4, FILE)


def test_segment_returns_mask_and_picture(client, service):
    service.reply_with(segment_reply(picture=png()))
    segmentation = client.segment(FILE, **CLICK)
    (received,) = service.requests
    assert received.path == "/mobile_sam"
    options = {"multimask_output": False, "segmented_image": "overlay", "low_res_mask": False}
    assert {**received.fields, "input_image": ""} == {"input_image": "", **SENT, **options}
    assert (segmentation.mask == mask_with_area(3)).all()
    assert (segmentation.score, segmentation.area, segmentation.box_xyxy) == (0.5, 3, (0, 0, 3, 1))
    assert segmentation.rle == rle(mask_with_area(3))
    assert (segmentation.image.mode, segmentation.image.size) == ("RGB", (6, 4))
    assert (segmentation.image_id, segmentation.width, segmentation.height) == ("the id", 6, 4)
    assert segmentation.candidates == ()
    assert segmentation.low_res_mask is None


def test_segment_sends_all_prompt_fields(client, service):
    service.reply_with(segment_reply())
    client.segment(
        FILE,
        pos_coords=np.array([[1, 2], [3, 3]]),
        labels=np.array([1, 0]),
        neg_coords=((5, 1),),
        box=np.array([0, 0, 5, 3]),
        mask_input=np.full((256, 256), 0.25, np.float32),
        multimask_output=np.bool_(False),
        segmented_image="none",
        low_res_mask=True,
    )
    fields = service.requests[0].fields
    assert {name: fields[name] for name in ("pos_coords", "labels", "neg_coords", "box", "mask_input")} == {
        "pos_coords": [[1, 2], [3, 3]],
        "labels": [1, 0],
        "neg_coords": [[5, 1]],
        "box": [0, 0, 5, 3],
        "mask_input": low_res_mask(0.25),
    }
    assert (fields["multimask_output"], fields["segmented_image"], fields["low_res_mask"]) == (False, "none", True)


def test_image_is_none_without_picture(client, service):
    service.reply_with(segment_reply())
    assert client.segment(FILE, **CLICK, segmented_image="none").image is None


def test_multimask_returns_the_best_candidate_and_all_candidates(client, service):
    masks = [
        {**mask_result(0, score, area), "low_res_mask": low_res_mask(score)}
        for score, area in ((0.5, 3), (0.9, 5), (0.7, 4))
    ]
    service.reply_with(segment_reply(masks, [rle(mask_with_area(mask["area"])) for mask in masks], png()))
    best = client.segment(FILE, **CLICK, multimask_output=True)
    assert best.score == 0.9
    assert (best.mask == mask_with_area(5)).all()
    assert best.low_res_mask.dtype == np.float32
    assert best.low_res_mask[0, 0] == np.float32(0.9)
    assert [candidate.score for candidate in best.candidates] == [0.9, 0.7, 0.5]
    assert [candidate.mask.sum() for candidate in best.candidates] == [5, 4, 3]


def test_segment_many_sends_one_request_and_keeps_order(client, service):
    masks = [mask_result(0, 0.1, 1), mask_result(0, 0.2, 2), mask_result(1, 0.4, 4), mask_result(1, 0.3, 3)]
    service.reply_with(segment_reply(masks, [rle(mask_with_area(mask["area"])) for mask in masks]))
    first, second = client.segment_many(FILE, [Prompt(**CLICK), Prompt(box=(0, 0, 2, 2))], multimask_output=True)
    fields = service.requests[0].fields
    assert fields["prompts"] == [{"pos_coords": [[1, 2]]}, {"box": [0, 0, 2, 2]}]
    assert fields["segmented_image"] == "none"
    assert (first.area, second.area) == (2, 4)
    assert [len(each.candidates) for each in (first, second)] == [2, 2]


def test_segment_many_without_prompts_sends_nothing(client, service):
    assert client.segment_many(FILE, []) == []


@pytest.mark.parametrize("wrong", [{"box": [0, 0, 2, 2]}, [[1, 2]], None], ids=["dict", "points", "None"])
def test_segment_many_rejects_other_types(client, service, wrong):
    with pytest.raises(TypeError, match=f"expected a Prompt, got {type(wrong).__name__}"):
        client.segment_many(FILE, [Prompt(**CLICK), wrong])
    assert not service.requests


def test_everything_reports_progress_and_returns_records(client, service):
    service.reply_with(lines_reply({"done": 0, "total": 2}, {"done": 1, "total": 2}, final_line(2, 5)))
    steps = []
    everything = client.everything(FILE, on_progress=lambda *step: steps.append(step), points_per_side=np.int64(4))
    fields = service.requests[0].fields
    assert service.requests[0].path == "/everything"
    assert (fields["points_per_side"], fields["progress"]) == (4, True)
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert (everything.image_id, everything.width, everything.height) == ("the id", 6, 4)
    first, second = everything.masks
    assert (first.mask == mask_with_area(2)).all()
    assert (second.area, second.bbox_xywh, second.crop_box) == (5, (0, 0, 5, 1), (0, 0, 6, 4))
    assert (second.predicted_iou, second.stability_score) == (0.9, 0.8)
    assert second.point_coords == ((1.5, 0.5),)


def test_everything_rejects_reserved_fields(client, service):
    for name in ("progress", "image_id", "input_image"):
        with pytest.raises(TypeError, match=f"{name} is set by the client"):
            client.everything(FILE, **{name: 1})
    assert not service.requests


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_invalid_image_is_rejected_before_sending(client, service, tmp_path, call):
    with pytest.raises(FileNotFoundError):
        getattr(client, call)(tmp_path / "none.jpg")
    with pytest.raises(TypeError, match="got list"):
        getattr(client, call)([1, 2])
    assert not service.requests


def test_invalid_prompt_is_rejected_and_named(client, service):
    with pytest.raises(ValueError, match=r"^box: expected four numbers, x0, y0, x1, y1, got shape \(3,\)"):
        client.segment(FILE, box=[1, 2, 3])
    with pytest.raises(ValueError, match=r"^prompts\[1\]\.box: expected four numbers"):
        client.segment_many(FILE, [Prompt(**CLICK), Prompt(box=[1, 2, 3])])
    assert not service.requests


def test_problem_is_raised(client, service):
    service.reply_with(problem_reply(415, "unsupported-image-format", "expected a PNG, got GIF"))
    with pytest.raises(
        InvalidImage, match=r"^415 unsupported-image-format: expected a PNG, got GIF \(request the-request\)$"
    ):
        client.embed(FILE)


def test_url_may_have_a_path(make, service):
    service.reply_with(json_reply(INFO))
    client = make(service, url="http://127.0.0.1:3000/sam/")
    client.info()
    assert service.requests[0].path == "/sam/info"
    assert client.url == "http://127.0.0.1:3000/sam"


def test_every_call_sends_the_model_version(make, service):
    client = make(service, model_version=2)
    service.reply_with(json_reply(IMAGE), segment_reply(), segment_reply(), lines_reply(final_line(2)))
    assert client.embed(FILE).model_version == 3
    assert client.segment(FILE, **CLICK, segmented_image="none").model_version == 3
    client.segment_many(FILE, [Prompt(**CLICK)])
    client.everything(FILE)
    assert [received.fields["model_version"] for received in service.requests] == [2, 2, 2, 2]


def test_no_model_version_is_sent_by_default(client, service):
    service.reply_with(json_reply(IMAGE))
    client.embed(FILE)
    assert "model_version" not in service.requests[0].fields


@pytest.mark.parametrize("version", [0, -1, 1.5, "2"], ids=repr)
def test_invalid_model_version_is_rejected(make, service, version):
    with pytest.raises(ValueError, match="model_version: expected an integer of at least 1"):
        make(service, model_version=version)
