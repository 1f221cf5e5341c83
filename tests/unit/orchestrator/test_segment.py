"""Segmentation and automatic masks on a pipeline with stand-ins for the encoder and the decoder."""

import base64
import hashlib
import io
import json
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

from orchestrator import masks
from orchestrator.cache import MOBILE_SAM_SHAPES
from orchestrator.call import Call, MemoryFile, ModelRequest
from orchestrator.pipeline import Pipeline
from orchestrator.problems import CostlyRequest, Rejected
from orchestrator.segment import segment, warm_up
from tests.unit.orchestrator.pipelines import (
    HEIGHT,
    REGION,
    WIDTH,
    decoder,
    model_request,
    png,
    sizes_encoded,
)

TOP_LEFT_BOX = [0, 0, 32, 24]


def parts(pipeline: Pipeline, request: ModelRequest) -> tuple[bytes, bytes, dict[str, Any]]:
    mask, picture, result = (b"".join(part) for part in segment(pipeline, request))
    return mask, picture, json.loads(result)


def test_click_returns_mask_and_result(pipeline):
    mask, picture, result = parts(pipeline, model_request())
    expected = np.zeros((HEIGHT, WIDTH), int)
    expected[:24, :32] = 1
    assert json.loads(mask) == expected.tolist()
    assert picture == b""
    (described,) = result.pop("masks")
    assert described == {"object": 0, "score": 0.6, "area": 24 * 32, "box": TOP_LEFT_BOX}
    assert {name: result[name] for name in ("width", "height", "weights", "model_version")} == {
        "width": WIDTH,
        "height": HEIGHT,
        "weights": {"name": "none"},
        "model_version": 3,
    }


def test_embedding_is_a_file_that_names_its_weights_and_frame(pipeline):
    pipeline.identity["weights"]["sha256"] = "00"
    file, _, result = parts(pipeline, model_request(0, embedding=True))
    assert {name: tensor.shape for name, tensor in load(file).items()} == MOBILE_SAM_SHAPES
    size = int.from_bytes(file[:8], "little")
    assert json.loads(file[8 : 8 + size])["__metadata__"] == {
        "image_id": result["image_id"],
        "width": "64",
        "height": "48",
        "orientation": "1",
        "frame_width": "1024",
        "frame_height": "768",
        "squashed": "false",
        "region": "[0,0,64,48]",
        "weights": "none",
        "weights_sha256": "00",
        "model_version": "3",
        "encoder": "a",
    }
    assert parts(pipeline, model_request(0, embedding=True))[2]["etag"] == result["etag"]
    of_region, _, result_of_region = parts(
        pipeline, model_request(0, embedding=True, region=[0, 0, 32, 32])
    )
    assert (b'"frame_height":"1024"' in of_region, result_of_region["etag"] != result["etag"]) == (
        True,
        True,
    )
    pipeline.identity["engine"]["encoder"] = "another"
    assert parts(pipeline, model_request(0, embedding=True))[2]["etag"] != result["etag"]


def test_candidates_of_several_objects_are_listed_in_order_with_logits(pipeline):
    request = model_request(
        2, multimask_output=True, mask_format="npy", low_res_mask=True, segmented_image="cutout"
    )
    mask, picture, result = parts(pipeline, request)
    assert np.load(io.BytesIO(mask)).shape == (6, HEIGHT, WIDTH)
    assert Image.open(io.BytesIO(picture)).mode == "RGBA"
    assert [(found["object"], found["score"]) for found in result["masks"]] == [
        (index, score) for index in (0, 1) for score in (0.7, 0.8, 0.9)
    ]
    logits = np.load(io.BytesIO(base64.b64decode(result["masks"][0]["low_res_mask"])))
    assert (logits.shape, logits.dtype) == ((256, 256), np.float32)


@pytest.mark.parametrize(
    ("mask_format", "masks_of"),
    [
        ("rle", json.loads),
        ("polygon", json.loads),
        ("png", lambda part: np.split(np.asarray(Image.open(io.BytesIO(part))), 2)),
    ],
    ids=["rle", "polygon", "png"],
)
def test_document_has_the_contents_of_the_parts(pipeline, mask_format, masks_of):
    options = {"mask_format": mask_format, "segmented_image": "overlay", "low_res_mask": True}
    parts(pipeline, model_request(0))  # the answer to a new image says how long it took
    wanted = parts(pipeline, model_request(2, **options))
    mask, picture, document = parts(pipeline, model_request(2, document=True, **options))
    assert (mask, picture) == (b"", b"")
    assert base64.b64decode(document.pop("segmented_image")) == wanted[1]
    found = [record.pop(mask_format) for record in document["masks"]]
    assert document == wanted[2]
    if mask_format == "png":
        found = [np.asarray(Image.open(io.BytesIO(base64.b64decode(each)))) for each in found]
    for each, expected in zip(found, masks_of(wanted[0]), strict=True):
        assert np.array_equal(each, expected)


def test_picture_shows_the_candidate_with_the_highest_score(pipeline):
    def right_half_is_best(inputs, outputs):
        logits, scores = decoder(inputs, outputs)
        logits[:, scores[0].argmax()] = -10
        logits[:, scores[0].argmax(), :, 128:] = 10
        return [logits, scores]

    pipeline.run_decoder = right_half_is_best
    _, picture, _ = parts(pipeline, model_request(multimask_output=True, segmented_image="cutout"))
    alpha = np.asarray(Image.open(io.BytesIO(picture)))[..., 3]
    assert not alpha[:, : WIDTH // 2].any()
    assert alpha[:, WIDTH // 2 :].all()


def test_mask_is_where_the_logits_are_above_the_threshold(pipeline):
    areas = [
        parts(pipeline, model_request(mask_threshold=at))[2]["masks"][0]["area"]
        for at in (-20, -9, 0, 9, 20)
    ]
    assert areas[0] == WIDTH * HEIGHT
    assert areas[4] == 0
    assert areas == sorted(areas, reverse=True)


def test_small_islands_are_removed_from_mask_area_and_picture(pipeline):
    def with_island(inputs, outputs):
        logits, scores = decoder(inputs, outputs)
        logits[..., 160:180, 200:220] = 10
        return [logits, scores]

    pipeline.run_decoder = with_island
    with_it, without = (
        parts(
            pipeline,
            model_request(mask_format="npy", segmented_image="cutout", min_mask_region_area=area),
        )
        for area in (0, 100)
    )
    assert with_it[2]["masks"][0]["area"] > without[2]["masks"][0]["area"]
    mask = np.load(io.BytesIO(without[0]))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(without[1])))[..., 3] > 0, mask)
    assert without[2]["masks"][0]["box"] == TOP_LEFT_BOX


def test_without_prompts_the_image_is_only_encoded(pipeline):
    mask, picture, result = parts(pipeline, model_request(0))
    assert mask == picture == b""
    assert "masks" not in result
    assert result.pop("encode_s") >= 0
    assert parts(pipeline, model_request(0, document=True))[2] == result
    by_id: dict[str, Any] = {"call": [json.dumps({"image_id": result["image_id"]}).encode()]}
    assert parts(pipeline, ModelRequest(by_id.get))[2]["image_id"] == result["image_id"]


def test_image_id_with_a_file_is_trusted_from_the_service_only(pipeline):
    claimed = Call(image_id="c" * 64)
    inputs = {"input_image": np.array([png()], np.object_)}
    by_others = ModelRequest(
        (inputs | {"call": np.array([json.dumps(vars(claimed)).encode()], np.object_)}).get
    )
    assert pipeline.embeddings.open(by_others).image_id == hashlib.sha256(png()).hexdigest()
    with MemoryFile(1e18) as memory_file:
        by_service = ModelRequest((inputs | {"call": memory_file.describe(claimed)}).get)
        assert pipeline.embeddings.open(by_service).image_id == "c" * 64


def test_click_outside_of_the_image_is_rejected_before_decoding(pipeline):
    with pytest.raises(Rejected, match=r"points\[0\]\[0\]"):
        segment(pipeline, model_request(points=[[[1000, 1000]]]))


@pytest.mark.parametrize(
    ("limit", "options", "expected"),
    [
        pytest.param(1000, {}, "at most 0 objects as json", id="estimated"),
        pytest.param(
            500,
            {"mask_format": "rle", "low_res_mask": True},
            "at most 0 objects as rle",
            id="logits",
        ),
        pytest.param(6000, {"segmented_image": "overlay"}, "with picture overlay", id="picture"),
        pytest.param(
            200,
            {"mask_format": "rle"},
            "an answer of at most 200 bytes",
            id="masks as they are made",
        ),
        pytest.param(
            200,
            {"mask_format": "rle", "document": True},
            "an answer of at most 200 bytes",
            id="records",
        ),
    ],
)
def test_answer_above_the_limit_is_rejected(pipeline, limit, options, expected):
    pipeline.max_answer_bytes = limit
    with pytest.raises(Rejected, match=f"answer-too-large.*{expected}"):
        segment(pipeline, model_request(8, **options))


def test_warm_up_leaves_nothing_for_the_first_request(pipeline):
    shapes: list[tuple[int, ...]] = []

    def run_decoder(inputs, outputs):
        shapes.append(inputs["point_coords"].shape)
        return decoder(inputs, outputs)

    warm_up(replace(pipeline, run_decoder=run_decoder), MOBILE_SAM_SHAPES)
    assert shapes == [(1, 2, 2)]  # a click and its padding point, as in the watchdog's probes
    assert masks._reused_buffer.cache_info().currsize == 1


def test_model_for_short_requests_rejects_many_objects(pipeline):
    with pytest.raises(CostlyRequest):
        segment(pipeline, model_request(200, costly=False))
    assert len(parts(pipeline, model_request(20))[2]["masks"]) == 20


def test_mask_of_a_region_lies_in_the_frame_of_the_image(pipeline):
    coords: list[list[float]] = []

    def run_decoder(inputs, outputs):
        coords.append(inputs["point_coords"][0, 0].tolist())
        logits, scores = decoder(inputs, outputs)
        return [np.roll(logits, 128, axis=3), scores]

    pipeline.run_decoder = run_decoder
    options: dict[str, Any] = {"mask_format": "npy", "segmented_image": "cutout"}
    mask, picture, result = parts(
        pipeline, model_request(points=[[[24, 12]]], region=REGION, **options)
    )
    assert coords == [[512, 256]]
    expected = np.zeros((HEIGHT, WIDTH), bool)
    expected[4:16, 24:40] = True
    assert np.array_equal(np.load(io.BytesIO(mask)), expected)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(picture)))[..., 3] > 0, expected)
    assert (result["region"], result["width"], result["height"]) == (REGION, WIDTH, HEIGHT)
    assert (result["masks"][0]["box"], result["masks"][0]["area"]) == ([24, 4, 40, 16], 12 * 16)
    assert result["image_id"] == hashlib.sha256(png()).hexdigest()


def test_only_the_region_is_encoded_once(pipeline):
    encoded = sizes_encoded(pipeline)
    view = [8, 4, 44, 40]
    for region in (view, [9.5, 4.5, 43, 39]):
        _, _, result = parts(pipeline, model_request(points=[[[24, 12]]], region=region))
        assert result["region"] == view
    by_id = json.dumps({"image_id": result["image_id"], "region": view})
    again: dict[str, Any] = {"call": [by_id.encode()]}
    assert parts(pipeline, ModelRequest(again.get))[2]["region"] == view
    assert encoded == [(1024, 1024)]
    whole = parts(pipeline, model_request(region=[0, 0, WIDTH, HEIGHT]))[2]
    assert whole["region"] == [0, 0, WIDTH, HEIGHT]
    assert parts(pipeline, model_request())[2]["masks"] == whole["masks"]
    assert encoded == [(1024, 1024), (768, 1024)]


def test_automatic_region_is_around_the_click_if_its_mask_is_empty(pipeline):
    def empty(inputs, outputs):
        logits, scores = decoder(inputs, outputs)
        return [np.full_like(logits, -10), scores]

    pipeline.run_decoder = empty
    pipeline.embeddings.max_pixels = 12_000_000
    request = model_request(points=[[[3900, 2900]]], region="auto", mask_format="rle")
    file = io.BytesIO()
    Image.new("RGB", (4000, 3000)).save(file, "PNG", compress_level=1)
    read = request.read
    request.read = lambda name: (  # type: ignore[method-assign]
        np.array([file.getvalue()], np.object_) if name == "input_image" else read(name)
    )
    x0, y0, x1, y1 = parts(pipeline, request)[2]["region"]
    assert (x0 > 3000, y0 > 2000, x1, y1) == (True, True, 4000, 3000)


@pytest.mark.parametrize(
    ("region", "points", "field"),
    [
        pytest.param([0, 0, WIDTH + 1, HEIGHT], [[[5, 5]]], "'region'", id="outside of the image"),
        pytest.param(
            REGION,
            [[[7, 5]]],
            r"points\[0\]\[0\].*inside the region",
            id="click outside of the region",
        ),
        pytest.param(
            REGION,
            [[[65, 5]]],
            r"points\[0\]\[0\].*inside the image",
            id="click outside of the image",
        ),
    ],
)
def test_unusable_region_is_rejected_before_encoding(pipeline, region, points, field):
    pipeline.embeddings.encoder = pytest.fail
    with pytest.raises(Rejected, match=field):
        segment(pipeline, model_request(points=points, region=region))


def labelled(request: ModelRequest, labels: Any) -> ModelRequest:
    """Return the request with other labels of its points."""
    read = request.read
    request.read = lambda name: np.array(labels, np.int32) if name == "point_labels" else read(name)  # type: ignore[method-assign]
    return request


def test_clip_moves_prompts_into_the_image_and_the_result_names_them(pipeline, monkeypatch):
    prompts = [[[-3, 5], [1, 1]], [[-1, -2], [WIDTH + 1, 20]], [[4, 4], [9, HEIGHT + 0.5]]]
    point_paths = [
        ["prompts[0].pos_coords[0]", "prompts[0].neg_coords[0]"],
        ["prompts[1].box"] * 2,
        ["prompts[2].box"] * 2,
    ]
    inside = [[[0, 5], [1, 1]], [[0, 0], [WIDTH, 20]], [[4, 4], [9, HEIGHT]]]
    runs = Mock(side_effect=decoder)
    monkeypatch.setattr(pipeline, "run_decoder", runs)
    labels = [[1, 0], [2, 3], [2, 3]]
    request = labelled(model_request(3, points=prompts, clip=True, point_paths=point_paths), labels)
    _, _, result = parts(pipeline, request)
    assert result["clipped"] == ["prompts[0].pos_coords[0]", "prompts[1].box", "prompts[2].box"]
    _, _, same = parts(
        pipeline,
        labelled(model_request(3, points=inside, clip=True, point_paths=point_paths), labels),
    )
    assert "clipped" not in same
    (clipped, _), (exact, _) = (run.args for run in runs.call_args_list)
    np.testing.assert_array_equal(clipped["point_coords"], exact["point_coords"])
    _, _, unnamed = parts(pipeline, labelled(model_request(3, points=prompts, clip=True), labels))
    assert unnamed["clipped"] == ["points[0][0]", "points[1][0]", "points[1][1]", "points[2][1]"]


def test_clip_cuts_a_region_and_the_result_names_it(pipeline):
    cut = parts(pipeline, model_request(region=[-8, -4, 40, HEIGHT + 3], clip=True))[2]
    exact = parts(pipeline, model_request(region=[0, 0, 40, HEIGHT], clip=True))[2]
    assert (cut.pop("clipped"), "clipped" in exact) == (["region"], False)
    assert {**cut, "encode_s": 0} == {**exact, "encode_s": 0}
    assert "clipped" not in parts(pipeline, model_request(region="auto", clip=True))[2]


@pytest.mark.parametrize(
    ("options", "hint"),
    [({}, ""), ({"offer_clip": True}, ', or send "clip": true')],
    ids=["tool", "caller"],
)
def test_place_outside_the_image_is_rejected_and_callers_learn_of_clip(pipeline, options, hint):
    with pytest.raises(Rejected) as caught:
        segment(pipeline, model_request(points=[[[WIDTH + 1, 5]]], **options))
    expected = f"a point inside the image: 0 <= x <= {WIDTH}, 0 <= y <= {HEIGHT}{hint}"
    assert caught.value.errors[0]["expected"] == expected
    with pytest.raises(Rejected) as caught:
        segment(pipeline, model_request(region=[0, 0, WIDTH + 1, HEIGHT], **options))
    assert caught.value.errors[0]["expected"].endswith(f"sides of at least 32 pixels{hint}")
    with pytest.raises(Rejected) as caught:
        segment(pipeline, model_request(region=[0, 0, 31, HEIGHT], **options))
    assert caught.value.errors[0]["expected"].endswith("sides of at least 32 pixels")


def test_region_without_a_part_in_the_image_is_rejected_with_clip_too(pipeline):
    with pytest.raises(Rejected, match=r"\[64, 0, 99, 40\]"):
        segment(pipeline, model_request(region=[WIDTH, 0, 99, 40], clip=True))
    with pytest.raises(Rejected, match="inside the region"):
        segment(pipeline, model_request(points=[[[-7, 5]]], region=[8, 0, 48, 40], clip=True))


def test_automatic_region_is_around_boxes_and_around_the_masks_of_clicks(pipeline, monkeypatch):
    boxes: list[Any] = []

    def auto_region(given, size_hw):
        boxes.append(given.tolist())
        return (8, 4, 40, 36)

    monkeypatch.setattr("orchestrator.segment.auto_region", auto_region)
    _, _, result = parts(pipeline, model_request(points=[[[33, 5]]], region="auto"))
    assert boxes == [[[33, 5, 33, 5], [0, 0, 32, 24]]]
    assert result["region"] == REGION
    boxed = labelled(model_request(points=[[[10, 6], [20, 16]]], region="auto"), [[2, 3]])
    runs = Mock(side_effect=decoder)
    monkeypatch.setattr(pipeline, "run_decoder", runs)
    assert parts(pipeline, boxed)[2]["region"] == REGION
    assert runs.call_count == 1  # in the region: the whole image is not needed
    assert boxes[1] == [[10, 6, 20, 16]]


def test_model_for_short_requests_refuses_to_decode_a_large_image_for_a_region(
    pipeline, monkeypatch
):
    parts(pipeline, model_request(0))
    monkeypatch.setattr("orchestrator.costs.DECODE_NS", 10**6)
    with pytest.raises(CostlyRequest):
        segment(pipeline, model_request(points=[[[24, 12]]], region=REGION, costly=False))
    parts(pipeline, model_request(points=[[[24, 12]]], region=REGION))
    assert (
        parts(pipeline, model_request(points=[[[24, 12]]], region=REGION, costly=False))[2][
            "region"
        ]
        == REGION
    )


def test_file_is_kept_without_encoding_and_encoded_later_by_its_id(pipeline):
    encoded = sizes_encoded(pipeline)
    _, _, kept = parts(pipeline, model_request(0, encode=False))
    assert ((kept["width"], kept["height"]), encoded) == ((WIDTH, HEIGHT), [])
    later: dict[str, Any] = {"call": [json.dumps({"image_id": kept["image_id"]}).encode()]}
    _, _, found = parts(pipeline, ModelRequest(later.get))
    assert ({**found, "encode_s": 0} == {**kept, "encode_s": 0}, len(encoded)) == (True, 1)


def large(pipeline: Pipeline, *, costly: bool = True, **options: Any) -> ModelRequest:
    """Return a request about an image above the limit, which this sets, as the service sends it
    for an adapter.
    """
    pipeline.embeddings.max_pixels = WIDTH * HEIGHT // 4
    request = model_request(costly=costly, **{"document": True, "mask_format": "rle", **options})
    request.call = replace(request.call, scale_down=True)
    return request


def test_image_above_the_limit_is_worked_on_at_a_smaller_size_only_if_the_call_says_so(pipeline):
    request = large(pipeline)
    sizes = sizes_encoded(pipeline)
    result = parts(pipeline, request)[2]
    assert sizes == [(768, 1024)]
    assert (result["width"], result["height"], result["reduction"]) == (WIDTH, HEIGHT, 2)
    (mask,) = result["masks"]
    assert (mask["area"], mask["box"]) == (24 * 32, TOP_LEFT_BOX)
    assert mask["grid_rle"]["size"] == [HEIGHT // 2, WIDTH // 2]
    assert "rle" not in mask
    request.call = replace(request.call, scale_down=False)
    with pytest.raises(Rejected, match="at most 768 pixels"):
        segment(pipeline, request)


@pytest.mark.parametrize(("min_area", "islands"), [(0, 2), (100, 2), (2000, 1)])
def test_islands_of_an_image_above_the_limit_are_measured_in_its_pixels(
    pipeline, min_area, islands
):
    def with_island(inputs, outputs):
        logits, scores = decoder(inputs, outputs)
        logits[..., 128:176, 176:224] = 10  # 12 x 12 pixels of the image
        return [logits, scores]

    pipeline.run_decoder = with_island
    request = large(pipeline, mask_format="polygon", min_mask_region_area=min_area)
    (mask,) = parts(pipeline, request)[2]["masks"]
    assert len(mask["polygon"]) == islands


def test_image_below_the_limit_is_answered_as_without_scale_down(pipeline):
    request = model_request(document=True, mask_format="rle")
    wanted = parts(pipeline, model_request(document=True, mask_format="rle"))[2]
    request.call = replace(request.call, scale_down=True)
    found = parts(pipeline, request)[2]
    wanted.pop("encode_s")
    assert found == wanted


@pytest.mark.parametrize(
    "options",
    [{"document": False}, {"segmented_image": "overlay"}, {"mask_format": "png"}],
    ids=str,
)
def test_other_answers_about_an_image_worked_on_at_a_smaller_size_are_an_error(pipeline, options):
    with pytest.raises(
        ValueError, match="expected a document without a picture, with masks as rle or polygon"
    ):
        segment(pipeline, large(pipeline, **options))


def test_region_of_an_image_above_the_limit_is_in_pixels_of_the_image(pipeline):
    request = large(pipeline, points=[[[20, 20]]])
    request.call = replace(request.call, region=REGION)
    result = parts(pipeline, request)[2]
    x0, y0, x1, y1 = result["region"]
    assert result["region"] == REGION
    # The decoder finds three eighths of its frame's rows, and the left half.
    assert result["masks"][0]["box"] == [x0, y0, x0 + (x1 - x0) // 2, y0 + (y1 - y0) * 3 // 8]
