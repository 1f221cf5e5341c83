"""Images above `max_side`: sent smaller, prompted and answered in their own frame."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client import _answers
from mobile_sam_client._scaling import Scaling
from tests.unit.client.mobile_sam_client import fake_service as fake

SIZE, SENT = (60, 40), (30, 20)
HALF: dict[str, Any] = {"width": SENT[0], "height": SENT[1]}
FILE = fake.file_of(Image.new("RGB", SIZE[::-1]), "JPEG", exif=fake.rotated_90())
SMALL = np.zeros(SENT[::-1], bool)
SMALL[5:10, 20:30] = SMALL[12:, :3] = True
LARGE = SMALL.repeat(2, 0).repeat(2, 1)


def answer(mask, **fields):
    """Return the answer of /everything with one record about an image of the mask's size."""
    height, width = mask.shape
    return {
        **fake.IMAGE,
        "width": width,
        "height": height,
        "masks": [{**fake.record_of(mask, (0, 0, 1, 1)), **fields}],
    }


@pytest.fixture
def client(make, service):
    return make(service, max_side=30)


def test_mask_is_scaled_back_to_the_nearest_pixels():
    random = np.random.default_rng(0)
    for size_wh, sent_wh in (((97, 61), (40, 25)), ((61, 97), (61, 96)), ((300, 1), (7, 1))):
        small = random.random(sent_wh[::-1]) < random.random()
        columns, rows = (
            ((np.arange(large) + 0.5) * sent / large).astype(int)
            for large, sent in zip(size_wh, sent_wh, strict=True)
        )
        expected = small[rows][:, columns]
        for mask, whole in (
            (small, expected),
            (~small, ~expected),
            (small & False, expected & False),
        ):
            (sent,) = _answers.parse_everything(
                answer(mask), lambda: np.zeros((1, 1, 3), np.uint8)
            ).masks
            found = Scaling(size_wh, sent_wh).displayed(sent)
            assert found.rle == fake.rle(whole)
            x, y, width, height = coco.toBbox(fake.rle(whole)).astype(int).tolist()
            assert (found.area, found.box_xyxy) == (whole.sum(), (x, y, x + width, y + height))


def test_prompts_and_masks_of_larger_images_have_the_frame_of_the_displayed_image(client, service):
    mask = {**fake.mask_result(0), "area": int(SMALL.sum())}
    service.replies = [fake.segment_reply([mask], fake.rle(SMALL), **HALF)]
    found = client.segment(FILE, pos_coords=(59, 39), box=[0, 0, 60, 40], min_mask_region_area=100)
    with Image.open(io.BytesIO(service.images[0])) as sent:
        assert (sent.format, sent.size) == ("JPEG", SENT)
    expected = {"pos_coords": [[29.5, 19.5]], "box": [0, 0, 30, 20], "min_mask_region_area": 25}
    assert service.fields[0].items() >= expected.items()
    np.testing.assert_array_equal(found.mask, LARGE)
    assert (found.width, found.height, found.area, found.box_xyxy) == (
        *SIZE,
        LARGE.sum(),
        (0, 10, 60, 40),
    )
    assert (found.overlay().size, found.orientation) == (SIZE, 6)
    assert client.segment(FILE, pos_coords=(1, 1)).area == found.area
    client.segment(small := fake.png(), pos_coords=(1, 1))
    assert service.images[1:] == ["the id", small]


def test_answered_region_is_the_same_when_it_is_sent_again(make, service):
    client = make(service, max_side=70)
    file = fake.png(size=(101, 67))
    for region in ([8, 16, 48, 40], [24, 0, 70, 46]):
        service.replies = [
            fake.json_reply({**fake.IMAGE, "width": 70, "height": 46, "region": region}),
            fake.default_reply,
        ]
        answered = client.embed(file, region=[10.4, 20, 60, 59]).region
        client.embed(file, region=answered)
        assert service.fields[-1]["region"] == region
    assert Scaling((101, 67), (70, 46)).fields_to_send({"region": "auto"}) == {"region": "auto"}


def test_embedding_keeps_the_frame_of_the_displayed_image(client, service):
    service.replies = [fake.json_reply({**fake.IMAGE, **HALF})]
    photo = client.embed(FILE)
    assert (photo.width, photo.height, photo.orientation) == (*SIZE, 6)
    service.replies = [
        fake.lines_reply({"done": 1, "total": 1, "result": answer(SMALL, crop_box=[15, 0, 15, 20])})
    ]
    (found,) = everything = client.everything(photo)
    np.testing.assert_array_equal(found.mask, LARGE)
    assert (found.point_coords, found.crop_box) == (((3.0, 1.0),), (30, 0, 30, 40))
    assert (everything.overlay().size, everything.orientation) == (SIZE, 6)


def test_unusable_arguments_are_rejected_before_sending(client, service):
    with pytest.raises(
        ValueError,
        match=(
            r"^box: expected x of 0 to 60 and y of 0 to 40, or clip=True, got \[\[0.0, 0.0\],"
            r" \[61.0, 4.0\]\]$"
        ),
    ):
        client.segment(FILE, box=[0, 0, 61, 4])
    with pytest.raises(
        ValueError, match=r"^image: expected an image file that Pillow can read, got 5 other bytes$"
    ):
        client.embed(b"bytes")
    assert not service.requests


def test_what_is_outside_stays_outside_for_the_service_to_clip(client, service):
    mask = {**fake.mask_result(0), "area": int(SMALL.sum())}
    service.replies = [
        fake.segment_reply(
            [mask], fake.rle(SMALL), **HALF, clipped=["box", "pos_coords[1]", "region"]
        )
    ]
    fields: dict[str, Any] = {"pos_coords": [[60, 40], [62, -2]], "box": [-4, 0, 60, 44]}
    found = client.segment(FILE, **fields, region=[-1, -1, 50, 41], clip=True)
    expected = {
        "pos_coords": [[30, 20], [31, -1]],
        "box": [-2, 0, 30, 22],
        "region": [0, 0, 25, 20],
        "clip": True,
    }
    assert service.fields[0].items() >= expected.items()
    assert found.clipped == ("box", "pos_coords[1]", "region")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"box": [60, 0, 70, 9]},
            (
                r"^box: expected a part inside the image of 60 x 40 pixels, got \[60.0, 0.0, 70.0,"
                r" 9.0\]$"
            ),
        ),
        (
            {"box": [0, 0, 9, 9], "region": [0, -50, 60, 0]},
            r"^region: expected a part inside the image of 60 x 40",
        ),
    ],
    ids=["box", "region"],
)
def test_box_without_a_part_in_the_image_is_rejected_in_the_frame_of_the_displayed_image(
    client, fields, message
):
    with pytest.raises(ValueError, match=message):
        client.segment(FILE, **fields, clip=True)
