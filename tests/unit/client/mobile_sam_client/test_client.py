"""Public calls of `Client` and `AsyncClient`; each test runs with both."""

import inspect
from typing import Any

import numpy as np
import pytest

import mobile_sam_client
from mobile_sam_client import AsyncClient, Client, EverythingOptions, MaskOptions, Prompt
from tests.unit.client.mobile_sam_client import fake_service as fake
from tests.unit.client.mobile_sam_client.fake_service import FILE, mask_result, mask_with_area
from utils.api.requests import EverythingRequest, ImageFields, SegmentRequest

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}


def test_all_is_sorted_and_complete():
    names = mobile_sam_client.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))  # constants first
    public = {
        name
        for name, value in vars(mobile_sam_client).items()
        if name[0] != "_" and not inspect.ismodule(value)
    }
    assert public == set(names)


def test_both_clients_have_the_same_methods_and_parameters():
    def signatures(kind) -> dict[str, Any]:
        functions = inspect.getmembers(kind, inspect.isfunction)
        return {
            name.removeprefix("a"): inspect.signature(call)
            for name, call in functions
            if name[0] != "_"
        }

    assert signatures(Client) == signatures(AsyncClient)
    one = ["close", "embed", "embed_ahead", "everything", "info", "masks_for"]
    assert list(signatures(Client)) == [*one, "segment", "segment_many"]
    prompt = ["pos_coords", "labels", "neg_coords", "box", "mask_input"]
    assert list(signatures(Client)["segment"].parameters) == [
        "self",
        "image",
        *prompt,
        "segmented_image",
        "options",
    ]


def test_segment_returns_mask_and_picture(client, service):
    service.reply_with(fake.segment_reply(picture=fake.png()))
    segmentation = client.segment(FILE, **CLICK)
    assert [request.url.path for request in service.requests] == ["/mobile_sam"]
    (sent,) = service.fields
    del sent["input_image"]
    assert sent == {"pos_coords": [[1.0, 2.0]], "mask_format": "rle", "segmented_image": "overlay"}
    assert (segmentation.mask == mask_with_area(3)).all()
    assert (segmentation.score, segmentation.area, segmentation.box_xyxy) == (0.5, 3, (0, 0, 3, 1))
    assert segmentation.rle == fake.rle(mask_with_area(3))
    assert (segmentation.image.mode, segmentation.image.size) == ("RGB", (6, 4))
    assert (segmentation.image_id, segmentation.width, segmentation.height) == ("the id", 6, 4)
    assert (segmentation.candidates, segmentation.low_res_mask) == ((), None)


def test_multimask_returns_the_best_candidate_and_all_candidates(client, service):
    service.reply_with(fake.segment_reply(fake.three_candidates(), picture=fake.png()))
    best = client.segment(FILE, **CLICK, multimask_output=True)
    assert best.score == 0.9
    assert (best.mask == mask_with_area(5)).all()
    assert best.low_res_mask.dtype == np.float32
    assert best.low_res_mask[0, 0] == np.float32(0.9)
    assert [(each.score, each.candidate_index, each.mask.sum()) for each in best.candidates] == [
        (0.9, 1, 5),
        (0.7, 2, 4),
        (0.5, 0, 3),
    ]


def test_segment_many_sends_one_request_and_keeps_order(client, service):
    scored = ((0, 0.1, 1), (0, 0.2, 2), (1, 0.4, 4), (1, 0.3, 3))
    service.reply_with(fake.segment_reply([mask_result(*each) for each in scored]))
    first, second = client.segment_many(
        FILE, [Prompt(**CLICK), Prompt(box=(0, 0, 2, 2))], multimask_output=True
    )
    (fields,) = service.fields
    assert fields["prompts"] == [{"pos_coords": [[1, 2]]}, {"box": [0, 0, 2, 2]}]
    assert fields["segmented_image"] == "none"
    assert (first.area, second.area) == (2, 4)
    assert [len(each.candidates) for each in (first, second)] == [2, 2]


@pytest.mark.parametrize("name", ["mask_threshold", "min_mask_region_area"])
def test_mask_options_are_sent_if_given(client, service, name):
    calls = [
        client.segment,
        lambda file, **options: client.segment_many(file, [Prompt()], **options),
    ]
    for segment in calls:
        segment(FILE)
        segment(FILE, **{name: np.int16(0)})
    assert [fields.get(name) for fields in service.fields] == [None, 0] * 2


def test_options_are_those_of_the_service(client, service):
    expected = (
        EverythingRequest.model_fields.keys() - ImageFields.model_fields.keys() - {"progress"}
    )
    assert EverythingOptions.__annotations__.keys() == expected
    assert MaskOptions.__annotations__.keys() < SegmentRequest.model_fields.keys()
    for call in (
        client.segment,
        client.everything,
        lambda file, **options: client.segment_many(file, [], **options),
    ):
        with pytest.raises(TypeError, match=r"\(\) got an unexpected keyword argument 'points'$"):
            call(FILE, points=[[1, 2]])
    with pytest.raises(
        TypeError, match=r"^segment\(\) missing 1 required positional argument: 'image'$"
    ):
        client.segment()
    with pytest.raises(
        TypeError, match=r"^Client\(\) got an unexpected keyword argument 'address'$"
    ):
        Client(address="127.0.0.1")  # type: ignore[call-arg]
    assert not service.requests


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_invalid_image_is_rejected_before_sending(client, service, tmp_path, call):
    with pytest.raises(FileNotFoundError):
        getattr(client, call)(tmp_path / "none.jpg")
    with pytest.raises(
        TypeError, match=r"^image: expected a path, the bytes of a file, .*, got list$"
    ):
        getattr(client, call)([[1, 2]])
    assert not service.requests


def test_invalid_prompt_is_named_and_rejected_before_sending(client, service):
    assert client.segment_many(FILE, []) == []
    with pytest.raises(
        ValueError, match=r"^box: expected four numbers, x0, y0, x1, y1, got shape \(3,\)"
    ):
        client.segment(FILE, box=[1, 2, 3])
    with pytest.raises(ValueError, match=r"^prompts\[1\]\.box: expected four numbers"):
        client.segment_many(FILE, [Prompt(**CLICK), Prompt(box=[1, 2, 3])])
    with pytest.raises(TypeError, match=r"^prompts\[1\]: expected a Prompt, got dict"):
        client.segment_many(FILE, [Prompt(**CLICK), {"box": [0, 0, 2, 2]}])
    assert not service.requests


def test_every_call_sends_the_model_version(make, service):
    client = make(service, model_version=2)
    for result in (
        client.embed(FILE),
        client.segment(FILE, **CLICK, segmented_image="none"),
        client.everything(FILE),
    ):
        assert result.model_version == 3
    assert [fields["model_version"] for fields in service.fields] == [2, 2, 2]
