"""Proposals of "Segment everything": duplicates, sorting, filtering, accepting, discarding."""

from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, RED


def scores(driver) -> list[float]:
    return [
        float(text) for text in driver.page.locator("#objects .score").all_inner_texts() if text
    ]


def test_an_object_is_found_once(clicked):
    disc = clicked.visible_mask()
    clicked.segment_everything()
    expect(clicked.page.locator("#hint")).to_contain_text("already here")
    clicked.page.get_by_label("Min. size").fill("1")
    clicked.click(*DISC, keys=("Control",))
    clicked.press("Delete")
    assert not (disc & clicked.visible_mask("others")).sum() > 0.8 * disc.sum()


def counts(driver) -> tuple[int, int, int]:
    """Return the number of objects as the image's badge, the class and the saved file have it."""
    badge = driver.page.locator("#image-list .count").inner_text()
    in_class = driver.page.locator("#class-list .score").inner_text()
    return int(badge), int(in_class), len(driver.saved_coco()["annotations"])


def test_proposals_are_filtered_and_counted_nowhere_until_accepted_also_after_a_reload(
    driver, tmp_path
):
    picture = Image.new("RGB", (480, 320), (96, 140, 190))
    draw = ImageDraw.Draw(picture)
    for number, radius in enumerate((12, 20, 30, 45, 60)):
        draw.circle((40 + 95 * number, 160), radius, fill=(235, 40 * number, 60))
    picture.save(tmp_path / "discs.png")
    driver.open(tmp_path / "discs.png")
    driver.click(60 + 95 * 3, 160)
    driver.segment_everything()
    found = driver.page.locator("#found-count")
    total = int(found.inner_text().split()[2])
    driver.page.get_by_label("Sort proposals").select_option("score")
    assert scores(driver)[1:] == sorted(scores(driver)[1:], reverse=True)
    painted = driver.visible_mask("others")
    driver.page.get_by_label("Min. size").fill("4")
    rows, proposals = driver.page.locator("#objects li"), driver.page.locator("#objects .proposal")
    shown = int(found.inner_text().split()[0])
    assert 1 < shown < total
    assert driver.visible_mask("others").sum() < painted.sum()
    assert counts(driver) == (1, 1, 1)
    expect(driver.page.locator("#saved")).to_have_text("Saved")
    driver.page.reload()
    expect(found).to_have_text(f"{shown} of {total} proposals shown")
    expect(proposals).to_have_count(shown)
    assert counts(driver) == (1, 1, 1)
    for name in ("save-mask", "save-cutout"):
        proposals.first.locator(".pick").click()
        expect(driver.page.locator(f"#{name}")).to_be_disabled()
    driver.press("1")
    expect(proposals).to_have_count(shown - 1)
    assert counts(driver) == (2, 2, 2)
    driver.press_button("Accept all shown")
    expect(proposals).to_have_count(0)
    assert counts(driver) == (1 + shown,) * 3
    driver.press_button("Discard proposals")
    expect(found).to_be_hidden()
    assert counts(driver) == (1 + shown,) * 3
    for left, hidden in ((shown + 1, total - shown), (2, total - 1)):
        driver.press("Control+z")
        assert counts(driver) == (left,) * 3
        expect(found).to_contain_text(f"of {hidden} proposal")
    expect(rows).to_have_count(shown + 2)


def test_a_click_on_a_proposal_makes_it_an_object_of_the_class_in_use(opened):
    opened.segment_everything()
    opened.add_class("disc")
    proposals = opened.page.locator("#objects .proposal")
    count = proposals.count()
    # The second one is no click of the first object.
    for number, point in enumerate((DISC, RED), 1):
        opened.click(*point)
        expect(proposals).to_have_count(count - number)
        expect(opened.page.locator("#objects .active .category")).to_have_text("disc")
    assert opened.page.locator("#class-list .score").all_inner_texts() == ["0", "2"]
