"""The Python client, blocking and asyncio, against the real service."""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from mobile_sam_client import AsyncClient, Client, InvalidImage, InvalidRequest, Prompt
from mobile_sam_client.compat import SamAutomaticMaskGenerator, SamPredictor
from tests.e2e.pictures import scene
from tests.e2e.server import Server
from tests.unit.client.mobile_sam_client.fake_service import Awaited

pytestmark = pytest.mark.e2e

CLICK: dict[str, Any] = {"pos_coords": (240, 160)}


@pytest.fixture(params=[Client, AsyncClient])
def client(request, server: Server, monkeypatch) -> Iterator[Any]:
    """Return a client of either kind; calls of the asyncio client are awaited."""
    monkeypatch.delenv("MOBILE_SAM_API_KEY", raising=False)
    opened = request.param(server.url)
    opened = Awaited(opened) if isinstance(opened, AsyncClient) else opened
    yield opened
    opened.close()


def test_info_describes_the_service(client):
    info = client.info()
    assert info.weights is not None
    assert not info.key_needed
    assert (info.max_image_pixels, info.max_objects) == (25_000_000, 256)
    assert client.embed(scene(900)).weights == info.weights


def test_mask_of_an_object_can_be_refined(client):
    photo = client.embed(scene(901))
    first = client.segment(photo, **CLICK, multimask_output=True, low_res_mask=True)
    assert first.image is not None
    assert (first.image.mode, first.image.size) == ("RGB", (480, 320))
    assert [candidate.score for candidate in first.candidates] == sorted(
        (candidate.score for candidate in first.candidates), reverse=True
    )
    assert len(first.candidates) == 3
    for candidate in first.candidates:
        assert candidate.mask.shape == (320, 480)
        rows, columns = np.nonzero(candidate.mask)
        assert candidate.area == len(rows)
        if candidate.area:
            box = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert candidate.box_xyxy == box
    refined = client.segment(photo, **CLICK, mask_input=first.low_res_mask, segmented_image="cutout")
    assert refined.image is not None
    assert (np.asarray(refined.image)[..., 3] == 255 * refined.mask).all()
    assert refined.low_res_mask is None


def test_segment_many_gives_the_same_masks_as_single_calls(client, server):
    file = scene(902)
    prompts = [Prompt(pos_coords=[[100 + 60 * number, 160]], neg_coords=[[5, 5]]) for number in range(5)]
    together = client.segment_many(file, prompts)
    alone = [client.segment(file, pos_coords=prompt.pos_coords, neg_coords=[[5, 5]]) for prompt in prompts]
    assert len(together) == 5
    for one, other in zip(together, alone, strict=True):
        assert (one.mask != other.mask).mean() < 1e-3
        assert one.score == pytest.approx(other.score, abs=1e-3)


def test_everything_reports_progress_and_returns_records(client):
    steps = []
    parameters = {"points_per_side": 6, "pred_iou_thresh": 0, "stability_score_thresh": 0}
    everything = client.everything(scene(903), on_progress=lambda *step: steps.append(step), **parameters)
    total = steps[0][1]
    assert steps == [(done, total) for done in range(total + 1)]
    assert len(everything) > 0
    for record in everything:
        x0, y0, x1, y1 = record.box_xyxy
        assert record.mask[y0:y1, x0:x1].sum() == record.area > 0
    assert everything.overlay().size == (480, 320)


def test_polygons_and_pictures_of_a_mask_agree_with_it(client):
    found = client.segment(scene(908), **CLICK)
    drawn = Image.new("1", (480, 320))
    for outer, *holes in found.polygons():
        for ring, value in [(outer, 1), *((hole, 0) for hole in holes)]:
            ImageDraw.Draw(drawn).polygon([(x - 0.5, y - 0.5) for x, y in ring.tolist()], fill=value)
    assert (np.asarray(drawn) != found.mask).mean() < 0.01
    assert (np.asarray(found.cutout())[..., 3] == 255 * found.mask).all()
    assert found.overlay().size == (480, 320)


def test_compat_predictor_returns_the_arrays_of_the_service(server):
    with Client(server.url) as client, Image.open(io.BytesIO(scene(909))) as picture:
        pixels = np.asarray(picture.convert("RGB"))
        predictor = SamPredictor(client)
        predictor.set_image(pixels[..., ::-1], "BGR")
        points, labels = np.array([[240, 160], [5, 5]]), np.array([1, 0])
        masks, scores, low_res = predictor.predict(points, labels)
        logits, _, _ = predictor.predict(points, labels, return_logits=True)
        refined, _, _ = predictor.predict(points, labels, mask_input=low_res[[scores.argmax()]], multimask_output=False)
        best = client.segment(pixels, pos_coords=points, labels=labels, multimask_output=True)
    assert (masks.shape, scores.shape, low_res.shape, refined.shape) == (
        (3, 320, 480), (3,), (3, 256, 256), (1, 320, 480),
    )  # fmt: skip
    assert (masks[scores.argmax()] == best.mask).all()
    assert ((logits > 0) != masks).mean() < 1e-4


def test_compat_generator_returns_official_records(server):
    parameters: dict[str, Any] = {"points_per_side": 4, "pred_iou_thresh": 0, "stability_score_thresh": 0}
    with Client(server.url) as client, Image.open(io.BytesIO(scene(910))) as picture:
        pixels = np.asarray(picture.convert("RGB"))
        modes = ("binary_mask", "uncompressed_rle")
        generators = [SamAutomaticMaskGenerator(client, output_mode=mode, **parameters) for mode in modes]
        binary, uncompressed = (generator.generate(pixels) for generator in generators)
    assert binary
    for one, other in zip(binary, uncompressed, strict=True):
        assert one["area"] == one["segmentation"].sum() == sum(other["segmentation"]["counts"][1::2])


def test_image_has_one_id_for_paths_and_bytes_and_one_for_pixels(client, tmp_path):
    file = scene(904)
    path = tmp_path / "photo.png"
    path.write_bytes(file)
    with Image.open(path) as opened:
        opened.load()
    ids = {client.embed(image).image_id for image in (path, str(path), file)}
    assert ids == {hashlib.sha256(file).hexdigest()}
    array = np.asarray(opened)
    by_pixels = {client.embed(image).image_id for image in (opened, array, np.dstack([array, array[..., 0]]))}
    assert len(by_pixels) == 1
    masks = [client.segment(image, **CLICK).mask for image in (file, array)]
    assert (masks[0] == masks[1]).all()


def test_mask_of_a_rotated_photo_is_in_the_frame_of_the_input(client):
    """A file gets a mask as displayed, a PIL image a mask in its own pixel frame."""
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotated by 90 degrees for display
    file = io.BytesIO()
    with Image.open(io.BytesIO(scene(905))) as picture:
        picture.save(file, "PNG", exif=exif)
    with Image.open(file) as opened:
        by_file, by_pixels = client.segment(file.getvalue(), **CLICK), client.segment(opened, **CLICK)
    assert (by_file.width, by_file.height, by_file.mask.shape) == (320, 480, (480, 320))
    assert (by_pixels.width, by_pixels.height, by_pixels.mask.shape) == (480, 320, (320, 480))


def test_unknown_image_is_sent_again(client):
    photo = client.embed(scene(906))
    forgotten = dataclasses.replace(photo, image_id="0" * 64)
    assert client.segment(forgotten, **CLICK).image_id == photo.image_id
    assert client.everything(forgotten, points_per_side=1).image_id == photo.image_id


def test_rejected_request_names_the_field(client):
    with pytest.raises(InvalidRequest) as raised:
        client.segment(scene(907), box=[5, 5, 1, 1])
    assert raised.value.errors == [
        {"field": "box", "expected": "a box with x0 < x1 and y0 < y1", "got": "[5, 5, 1, 1]"}
    ]
    assert raised.value.request_id
    with pytest.raises(InvalidRequest, match="points_per_side"):
        client.everything(scene(907), points_per_side=65)
    with pytest.raises(InvalidImage, match="expected a PNG, JPEG or WebP file"):
        client.embed(b"no image")
