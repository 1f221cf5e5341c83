"""Objects found by "Segment everything": duplicates, sorting, filtering, deleting."""

import json

from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.browser.person import DISC


def scores(person) -> list[float]:
    return [float(text) for text in person.page.locator("#objects .score").all_inner_texts() if text]


def test_an_object_is_found_once(clicked):
    disc = clicked.visible_mask()
    clicked.segment_everything()
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
    person.segment_everything()
    found = person.page.locator("#found-count")
    total = int(found.inner_text().split()[0])
    person.page.get_by_label("Sort found objects").select_option("score")
    assert scores(person)[1:] == sorted(scores(person)[1:], reverse=True)
    painted = person.visible_mask("others")
    limit = person.page.get_by_label("Min. size")
    limit.fill("4")
    rows = person.page.locator("#objects li")
    shown = int(found.inner_text().split()[0])
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
