"""Mosaics of photographs, and the prompts that measure regions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks import regions
from benchmarks.objects import LabelledObject
from mobile_sam_client import Client

HEIGHT, WIDTH = 40, 60


def labelled(
    folder: Path, number: int, size_hw: tuple[int, int] = (HEIGHT, WIDTH)
) -> LabelledObject:
    """Return a square object of a value that depends on the number, on black."""
    image, file = np.zeros((*size_hw, 3), np.uint8), folder / f"{number}.png"
    image[10:20, 15:25] = 50 + number
    Image.fromarray(image).save(file)
    return LabelledObject(file, image, image[..., 0] > 0, (19, 14), (15, 10, 25, 20))


def test_objects_lie_in_mosaics_where_their_photographs_do(tmp_path):
    objects = [labelled(tmp_path, number) for number in range(5)] + [
        labelled(tmp_path, 9, (WIDTH, HEIGHT))
    ]
    found = list(regions.in_mosaics(objects, 2, tmp_path))
    assert len({each.file for each in found}) == 3
    for each, value in zip(found, (50, 51, 52, 53, 54, 59), strict=True):
        x0, y0, x1, y1 = (int(side) for side in each.box)
        assert each.image.shape[:2] in {(2 * HEIGHT, 2 * WIDTH), (2 * WIDTH, 2 * HEIGHT)}
        assert (each.image[each.mask] == value).all()
        assert each.mask[y0:y1, x0:x1].all()
        assert each.mask.sum() == 100
        assert each.mask[int(each.point[1]), int(each.point[0])]
        with Image.open(each.file) as picture:
            assert picture.size == each.image.shape[1::-1]


@pytest.mark.parametrize(
    "answered", [(0, 0, 32, 32), (0, 0, 60, 40)], ids=["click outside", "click inside"]
)
def test_later_clicks_name_the_answered_region_unless_they_are_outside(
    monkeypatch, tmp_path, answered
):
    each, asked = labelled(tmp_path, 0), []
    each.mask[:, 30:] = True
    answer = np.zeros_like(each.mask)
    answer[:20] = True

    def segment(_: Any, __: Path, **fields: Any) -> Any:
        asked.append(fields)
        return SimpleNamespace(mask=answer, region=answered, low_res_mask="logits")

    monkeypatch.setattr(Client, "segment", segment)
    ious = regions.measure(Client("http://service.test"), each, "auto")
    assert len(ious) == 3
    assert [fields["region"] for fields in asked[:2]] == ["auto", "auto"]
    kept = (answered, "logits") if answered[2] == WIDTH else ("auto", None)
    assert [(fields["region"], fields.get("mask_input")) for fields in asked[2:]] == [kept] * 2


def test_view_shows_the_object_and_lies_in_the_picture(tmp_path):
    generator = np.random.default_rng(0)
    for each in regions.in_mosaics([labelled(tmp_path, 0)], 3, tmp_path):
        x0, y0, x1, y1 = regions.view_of(each, generator)
        assert 0 <= x0 <= each.box[0] < each.box[2] <= x1 <= 3 * WIDTH
        assert 0 <= y0 <= each.box[1] < each.box[3] <= y1 <= 3 * HEIGHT


def test_table_has_a_row_for_each_size_and_kind_of_picture():
    rows = regions.region_table(
        {(1, 3): [[0.5] * 9, [0.7] * 9], (0, 8): [[0.25] * 9]}
    ).splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells == [
        ["0% to 1%", "8 x 8", "1", *["0.250"] * 9],
        ["1% to 5%", "3 x 3", "2", *["0.600"] * 9],
    ]
