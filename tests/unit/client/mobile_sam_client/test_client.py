"""Public calls of `Client` and `AsyncClient`; each test runs with both."""

import inspect
from typing import Any

import numpy as np
import pytest

import mobile_sam_client
from mobile_sam_client import AsyncClient, Client, Engine, Prompt, Weights
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    final_line,
    lines_reply,
    low_res_mask,
    mask_result,
    mask_with_area,
    png,
    rle,
    segment_reply,
)
from utils.api.requests import EverythingRequest, ImageFields

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}
SENT = {"pos_coords": [[1.0, 2.0]], "mask_format": "rle"}


def test_all_is_sorted_and_complete():
    names = mobile_sam_client.__all__
    assert names == sorted(names)
    public = {name for name, value in vars(mobile_sam_client).items() if name[0] != "_" and not inspect.ismodule(value)}
    assert public == set(names)


def test_both_clients_have_the_same_methods_and_parameters():
    def signatures(kind) -> dict[str, Any]:
        functions = inspect.getmembers(kind, inspect.isfunction)
        return {name.removeprefix("a"): inspect.signature(call) for name, call in functions if name[0] != "_"}

    assert signatures(Client) == signatures(AsyncClient)
    assert list(signatures(Client)) == ["close", "embed", "everything", "info", "segment", "segment_many"]
    assert [*inspect.signature(Client).parameters] == [*inspect.signature(AsyncClient).parameters]
    options = ["multimask_output", "segmented_image", "low_res_mask", "mask_threshold", "min_mask_region_area"]
    prompt = ["pos_coords", "labels", "neg_coords", "box", "mask_input"]
    assert list(signatures(Client)["segment"].parameters) == ["self", "image", *prompt, *options]
    assert list(signatures(Client)["segment_many"].parameters) == ["self", "image", "prompts", *options]


def test_info_is_parsed(client, service):
    info = client.info()
    assert service.requests[0].path == "/info"
    assert (info.version, info.key_needed) == ("1.2.3", True)
    assert info.weights == Weights("none", "0" * 64, True, "A note.")
    assert info.engine == Engine("an encoder", "a decoder")
    assert (info.max_body_bytes, info.max_image_pixels, info.max_objects) == (1000, 2000, 3)
    assert info.model_versions == (1, 3)


def test_embed_uploads_and_keeps_the_file(client, service):
    embedding = client.embed(FILE)
    assert service.requests[0].path == "/embed"
    assert set(service.requests[0].fields) == {"input_image"}
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
    assert [candidate.candidate_index for candidate in best.candidates] == [1, 2, 0]
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


@pytest.mark.parametrize("name", ["mask_threshold", "min_mask_region_area"])
def test_mask_options_are_sent_if_given(client, service, name):
    calls = [client.segment, lambda file, **options: client.segment_many(file, [Prompt()], **options)]
    for segment in calls:
        segment(FILE)
        segment(FILE, **{name: np.int16(0)})
    assert [received.fields.get(name) for received in service.requests] == [None, 0] * 2


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


def test_everything_has_the_parameters_and_defaults_of_the_service():
    parameters = {**inspect.signature(Client.everything).parameters}
    for name in ("self", "image", "on_progress"):
        del parameters[name]
    assert set(parameters) == set(EverythingRequest.model_fields) - set(ImageFields.model_fields) - {"progress"}
    assert {parameter.default for parameter in parameters.values()} == {None}


def test_pictures_are_drawn_on_the_image_as_passed(client, service, tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(png())
    for image in (path, png(), np.zeros((4, 6, 3), np.uint8)):
        assert client.segment(image).overlay().size == (6, 4)
    found = client.everything(path)
    assert found.overlay().size == found[1].cutout().size == (6, 4)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        found.overlay()


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_invalid_image_is_rejected_before_sending(client, service, tmp_path, call):
    for path, error in ((tmp_path / "none.jpg", FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(error):
            getattr(client, call)(path)
    for image in (None, 5, [[1, 2]], bytearray(b"x")):
        got = type(image).__name__
        with pytest.raises(TypeError, match=f"^image: expected a path, the bytes of a file, .*, got {got}$"):
            getattr(client, call)(image)
    assert not service.requests


def test_invalid_prompt_is_named_and_rejected_before_sending(client, service):
    assert client.segment_many(FILE, []) == []
    with pytest.raises(ValueError, match=r"^box: expected four numbers, x0, y0, x1, y1, got shape \(3,\)"):
        client.segment(FILE, box=[1, 2, 3])
    with pytest.raises(ValueError, match=r"^prompts\[1\]\.box: expected four numbers"):
        client.segment_many(FILE, [Prompt(**CLICK), Prompt(box=[1, 2, 3])])
    for wrong in ({"box": [0, 0, 2, 2]}, [[1, 2]], None):
        with pytest.raises(TypeError, match=rf"^prompts\[1\]: expected a Prompt, got {type(wrong).__name__}"):
            client.segment_many(FILE, [Prompt(**CLICK), wrong])
    assert not service.requests


def test_every_call_sends_the_model_version(make, service):
    client = make(service, model_version=2)
    assert client.embed(FILE).model_version == 3
    assert client.segment(FILE, **CLICK, segmented_image="none").model_version == 3
    client.segment_many(FILE, [Prompt(**CLICK)])
    client.everything(FILE)
    assert [received.fields["model_version"] for received in service.requests] == [2, 2, 2, 2]
