"""Objects found by "Segment everything": duplicates, sorting, filtering, deleting; colours; operations on masks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from tests.browser.person import DISC

GENERATOR = np.random.default_rng(1)
PAIRS = {
    "noise": [GENERATOR.random((41, 53)) > share for share in (0.4, 0.6)],
    "full and empty": [np.ones((6, 7), bool), np.zeros((6, 7), bool)],
    "itself": [np.tri(30, 20, dtype=bool)] * 2,
    "first and last pixel": [np.arange(30).reshape(5, 6) == 0, np.arange(30).reshape(5, 6) == 29],
}
BOX = (3, 1, 5, 4)
OPERATE = """async ([one, other, box]) => {
  const at = (name) => import(new URL(`ui/${name}.js`, document.baseURI));
  const [{ Mask }, { overlap, clipped, scaled }] = [await at("rle"), await at("regions")];
  const [first, second] = [one, other].map(({ rle, ...properties }) => new Mask(rle, { score: 1, ...properties }));
  const size = { width: Math.floor(first.width * 2.5), height: first.height * 3 };
  const record = ({ width, height, counts, area, box }) => ({ size: [height, width], counts, area, box });
  return { iou: overlap(first, second), clipped: record(clipped(first, box)), scaled: record(scaled(first, size)) };
}"""
COLOURS = """async () => {
  const { colourOf } = await import(new URL("ui/colours.js", document.baseURI));
  return Array.from({ length: 100 }, (_, index) => colourOf(index + 1));
}"""


def encode(mask: np.ndarray) -> dict:
    rle = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    x, y, width, height = (int(side) for side in coco_mask.toBbox(rle))
    counts = {"size": rle["size"], "counts": rle["counts"].decode()}
    return {"rle": counts, "area": int(mask.sum()), "box": [x, y, x + width, y + height]}


def segment_everything(person) -> int:
    """Segment everything and return the number of found objects."""
    person.page.get_by_label("Grid").select_option("8")
    person.press_button("Start")
    expect(person.page.locator("#hint")).to_contain_text("objects found")
    return int(person.page.locator("#found-count").inner_text().split()[0])


def scores(person) -> list[float]:
    return [float(text) for text in person.page.locator("#objects .score").all_inner_texts() if text]


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_operations_on_masks_match_numpy(person, pair):
    one, other = pair
    done = person.page.evaluate(OPERATE, [encode(one), encode(other), BOX])
    assert done["iou"] == pytest.approx((one & other).sum() / max((one | other).sum(), 1))
    inside = np.zeros_like(one)
    inside[BOX[1] : BOX[3] + 1, BOX[0] : BOX[2] + 1] = True
    width = one.shape[1] * 5 // 2
    columns = ((np.arange(width) + 0.5) * one.shape[1] / width).astype(int)
    for name, expected in (("clipped", one & inside), ("scaled", one.repeat(3, 0)[:, columns])):
        assert np.array_equal(coco_mask.decode(done[name]).astype(bool), expected), name
        assert done[name]["area"] == expected.sum()
        assert done[name]["box"] == encode(expected)["box"]


def test_hundred_objects_have_distinct_visible_colours(person):
    colours = person.page.evaluate(COLOURS)
    assert len(set(colours)) == 100
    rgb = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in colours])
    assert ((rgb.max(1) - rgb.min(1)) > 60).all()  # none is grey
    first = rgb[:20].astype(int)
    assert min(np.abs(a - b).sum() for at, a in enumerate(first) for b in first[:at]) > 50


def test_an_object_is_found_once(clicked):
    disc = clicked.visible_mask()
    segment_everything(clicked)
    expect(clicked.page.locator("#hint")).to_contain_text("already here")
    clicked.page.get_by_label("Min. size").fill("1")
    clicked.click(*DISC, keys=("Control",))
    clicked.press("Delete")
    assert not (disc & clicked.visible_mask("others")).sum() > 0.8 * disc.sum()


def test_found_objects_are_sorted_filtered_and_deleted_in_one_step(person, tmp_path):
    picture = Image.new("RGB", (480, 320), (96, 140, 190))
    draw = ImageDraw.Draw(picture)
    for number, radius in enumerate((12, 20, 30, 45, 60)):
        draw.circle((40 + 95 * number, 160), radius, fill=(235, 40 * number, 60))
    picture.save(tmp_path / "discs.png")
    person.open(tmp_path / "discs.png")
    person.click(60 + 95 * 3, 160)
    total = segment_everything(person)
    person.page.get_by_label("Sort found objects").select_option("score")
    assert scores(person)[1:] == sorted(scores(person)[1:], reverse=True)
    painted = person.visible_mask("others")
    limit = person.page.get_by_label("Min. size")
    limit.fill("4")
    rows = person.page.locator("#objects li")
    shown = int(person.page.locator("#found-count").inner_text().split()[0])
    assert 0 < shown < total
    expect(rows).to_have_count(2 + shown)
    assert person.visible_mask("others").sum() < painted.sum()
    coco = json.loads(person.save("COCO JSON"))
    assert len(coco["annotations"]) == 1 + shown
    person.press_button("Delete found")
    expect(rows).to_have_count(2)
    expect(limit).to_be_hidden()
    person.press("Control+z")
    expect(rows).to_have_count(2 + shown)
