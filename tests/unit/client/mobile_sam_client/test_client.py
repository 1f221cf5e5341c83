"""What callers of `Client` and of `AsyncClient` see; each test asks both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobile_sam_client import Engine, InvalidImage, Prompt, Weights
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    INFO,
    found,
    last,
    low_res_mask,
    mask_of,
    png,
    refuses,
    rle,
    says_json,
    says_lines,
    segments,
)

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}
ASKED = {"pos_coords": [[1.0, 2.0]], "mask_format": "rle"}


def test_info_tells_of_the_service(client, service):
    service.says(says_json(INFO))
    info = client.info()
    assert service.asked[0].path == "/info"
    assert (info.version, info.key_needed) == ("1.2.3", True)
    assert info.weights == Weights("none", "0" * 64, True, "A note.")
    assert info.engine == Engine("an encoder", "a decoder")
    assert (info.max_body_bytes, info.max_image_pixels, info.max_objects) == (1000, 2000, 3)
    assert info.model_versions == (1, 3)


def test_info_of_a_service_that_does_not_know_its_weights(client, service):
    service.says(says_json({**INFO, "weights": None}))
    assert client.info().weights is None


def test_embed_sends_the_file_and_keeps_it(client, service):
    service.says(says_json(IMAGE))
    embedding = client.embed(FILE)
    assert service.asked[0].path == "/embed"
    assert service.images == [FILE]
    assert (embedding.image_id, embedding.width, embedding.height, embedding.file) == ("the id", 6, 4, FILE)


def test_segment_asks_for_one_object_and_its_picture(client, service):
    service.says(segments(picture=png()))
    segmentation = client.segment(FILE, **CLICK)
    (asked,) = service.asked
    assert asked.path == "/mobile_sam"
    options = {"multimask_output": False, "segmented_image": "overlay", "low_res_mask": False}
    assert {**asked.fields, "input_image": ""} == {"input_image": "", **ASKED, **options}
    assert (segmentation.mask == mask_of(3)).all()
    assert (segmentation.score, segmentation.area, segmentation.box_xyxy) == (0.5, 3, (0, 0, 3, 1))
    assert segmentation.rle == rle(mask_of(3))
    assert (segmentation.image.mode, segmentation.image.size) == ("RGB", (6, 4))
    assert (segmentation.image_id, segmentation.width, segmentation.height) == ("the id", 6, 4)
    assert segmentation.candidates == ()
    assert segmentation.low_res_mask is None


def test_all_fields_of_a_prompt_are_sent(client, service):
    service.says(segments())
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
    fields = service.asked[0].fields
    assert {name: fields[name] for name in ("pos_coords", "labels", "neg_coords", "box", "mask_input")} == {
        "pos_coords": [[1, 2], [3, 3]],
        "labels": [1, 0],
        "neg_coords": [[5, 1]],
        "box": [0, 0, 5, 3],
        "mask_input": low_res_mask(0.25),
    }
    assert (fields["multimask_output"], fields["segmented_image"], fields["low_res_mask"]) == (False, "none", True)


def test_without_a_picture_there_is_none(client, service):
    service.says(segments())
    assert client.segment(FILE, **CLICK, segmented_image="none").image is None


def test_of_three_candidates_the_best_is_returned_and_all_are_there(client, service):
    masks = [
        {**found(0, score, area), "low_res_mask": low_res_mask(score)} for score, area in ((0.5, 3), (0.9, 5), (0.7, 4))
    ]
    service.says(segments(masks, [rle(mask_of(mask["area"])) for mask in masks], png()))
    best = client.segment(FILE, **CLICK, multimask_output=True)
    assert best.score == 0.9
    assert (best.mask == mask_of(5)).all()
    assert best.low_res_mask.dtype == np.float32
    assert best.low_res_mask[0, 0] == np.float32(0.9)
    assert [candidate.score for candidate in best.candidates] == [0.9, 0.7, 0.5]
    assert [candidate.mask.sum() for candidate in best.candidates] == [5, 4, 3]


def test_several_prompts_are_one_request_and_answered_in_order(client, service):
    masks = [found(0, 0.1, 1), found(0, 0.2, 2), found(1, 0.4, 4), found(1, 0.3, 3)]
    service.says(segments(masks, [rle(mask_of(mask["area"])) for mask in masks]))
    first, second = client.segment_many(FILE, [Prompt(**CLICK), Prompt(box=(0, 0, 2, 2))], multimask_output=True)
    fields = service.asked[0].fields
    assert fields["prompts"] == [{"pos_coords": [[1, 2]]}, {"box": [0, 0, 2, 2]}]
    assert fields["segmented_image"] == "none"
    assert (first.area, second.area) == (2, 4)
    assert [len(each.candidates) for each in (first, second)] == [2, 2]


def test_no_prompts_are_no_request(client, service):
    assert client.segment_many(FILE, []) == []


@pytest.mark.parametrize("wrong", [{"box": [0, 0, 2, 2]}, [[1, 2]], None], ids=["a dict", "points", "None"])
def test_what_is_no_prompt_is_told_as_such(client, service, wrong):
    with pytest.raises(TypeError, match=f"expected a Prompt, got {type(wrong).__name__}"):
        client.segment_many(FILE, [Prompt(**CLICK), wrong])
    assert not service.asked
    assert not service.asked


def test_everything_reports_its_progress_and_returns_records(client, service):
    service.says(says_lines({"done": 0, "total": 2}, {"done": 1, "total": 2}, last(2, 5)))
    steps = []
    everything = client.everything(FILE, on_progress=lambda *step: steps.append(step), points_per_side=np.int64(4))
    fields = service.asked[0].fields
    assert service.asked[0].path == "/everything"
    assert (fields["points_per_side"], fields["progress"]) == (4, True)
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert (everything.image_id, everything.width, everything.height) == ("the id", 6, 4)
    first, second = everything.masks
    assert (first.mask == mask_of(2)).all()
    assert (second.area, second.bbox_xywh, second.crop_box) == (5, (0, 0, 5, 1), (0, 0, 6, 4))
    assert (second.predicted_iou, second.stability_score) == (0.9, 0.8)
    assert second.point_coords == ((1.5, 0.5),)


def test_everything_takes_no_field_that_is_the_clients(client, service):
    for name in ("progress", "image_id", "input_image"):
        with pytest.raises(TypeError, match=f"got {name}, which the client fills in"):
            client.everything(FILE, **{name: 1})
    assert not service.asked


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_what_cannot_be_an_image_is_refused_before_anything_is_sent(client, service, tmp_path, call):
    with pytest.raises(FileNotFoundError):
        getattr(client, call)(tmp_path / "none.jpg")
    with pytest.raises(TypeError, match="got list"):
        getattr(client, call)([1, 2])
    assert not service.asked


def test_a_prompt_that_cannot_be_is_refused_and_named(client, service):
    with pytest.raises(ValueError, match=r"^box: expected four numbers, x0, y0, x1, y1, got shape \(3,\)"):
        client.segment(FILE, box=[1, 2, 3])
    with pytest.raises(ValueError, match=r"^prompts\[1\]\.box: expected four numbers"):
        client.segment_many(FILE, [Prompt(**CLICK), Prompt(box=[1, 2, 3])])
    assert not service.asked


def test_a_refusal_is_raised(client, service):
    service.says(refuses(415, "unsupported-image-format", "expected a PNG, got GIF"))
    with pytest.raises(
        InvalidImage, match=r"^415 unsupported-image-format: expected a PNG, got GIF \(request the-request\)$"
    ):
        client.embed(FILE)


def test_a_service_behind_a_path_is_asked_there(make, service):
    service.says(says_json(INFO))
    client = make(service, url="http://127.0.0.1:3000/sam/")
    client.info()
    assert service.asked[0].path == "/sam/info"
    assert client.url == "http://127.0.0.1:3000/sam"


def test_every_call_asks_the_version_that_the_client_was_made_for(make, service):
    client = make(service, model_version=2)
    service.says(says_json(IMAGE), segments(), segments(), says_lines(last(2)))
    assert client.embed(FILE).model_version == 3
    assert client.segment(FILE, **CLICK, segmented_image="none").model_version == 3
    client.segment_many(FILE, [Prompt(**CLICK)])
    client.everything(FILE)
    assert [asked.fields["model_version"] for asked in service.asked] == [2, 2, 2, 2]


def test_without_a_version_none_is_named(client, service):
    service.says(says_json(IMAGE))
    client.embed(FILE)
    assert "model_version" not in service.asked[0].fields


@pytest.mark.parametrize("version", [0, -1, 1.5, "2"], ids=repr)
def test_a_version_is_a_whole_number(make, service, version):
    with pytest.raises(ValueError, match="model_version: expected a whole number of at least 1"):
        make(service, model_version=version)
