"""The Python client, blocking and asyncio, against the real service."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from harness import Server
from mobile_sam_client import AsyncClient, Client, InvalidImage, InvalidRequest
from tests.e2e.pictures import scene
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


def test_mask_of_an_object_can_be_refined(client):
    photo = client.embed(scene(901))
    first = client.segment(photo, **CLICK, multimask_output=True, low_res_mask=True)
    assert first.image is not None
    assert (first.image.mode, first.image.size) == ("RGB", (480, 320))
    scores = [candidate.score for candidate in first.candidates]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 3
    for candidate in first.candidates:
        rows, columns = np.nonzero(candidate.mask)
        assert candidate.area == len(rows)
        if candidate.area:
            assert candidate.box_xyxy == (
                columns.min(),
                rows.min(),
                columns.max() + 1,
                rows.max() + 1,
            )
    refined = client.segment(
        photo, **CLICK, mask_input=first.low_res_mask, segmented_image="cutout"
    )
    assert refined.image is not None
    assert (np.asarray(refined.image)[..., 3] == 255 * refined.mask).all()
    assert refined.low_res_mask is None


def test_everything_reports_progress_and_returns_records(client):
    steps = []
    parameters = {"points_per_side": 6, "pred_iou_thresh": 0, "stability_score_thresh": 0}
    everything = client.everything(
        scene(903), on_progress=lambda *step: steps.append(step), **parameters
    )
    total = steps[0][1]
    assert steps == [(done, total) for done in range(total + 1)]
    assert len(everything) > 0
    for record in everything:
        x0, y0, x1, y1 = record.box_xyxy
        assert record.mask[y0:y1, x0:x1].sum() == record.area > 0
    assert everything.overlay().size == (480, 320)


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
