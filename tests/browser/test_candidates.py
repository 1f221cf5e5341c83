"""Mask candidates with thumbnails, and masks clipped to their box."""

import numpy as np
from playwright.sync_api import expect

from tests.browser.page_driver import DISC


def test_keys_choose_candidates_that_match_the_api(clicked):
    candidates = clicked.request_masks(pos_coords=[DISC], multimask_output=True)
    assert len(candidates) == 3
    for key, candidate in zip("iop", candidates, strict=True):
        clicked.press(key)
        assert np.array_equal(clicked.visible_mask(), candidate)
    clicked.press("u")
    clicked.assert_mask_is_the_apis(pos_coords=[DISC])
    clicked.press("c")
    assert np.array_equal(clicked.visible_mask(), candidates[0])
    clicked.page.get_by_text("Automatic", exact=True).click()
    clicked.assert_mask_is_the_apis(pos_coords=[DISC])


def low_score(route) -> None:
    """Pass a request on, and answer with a low score."""
    response = route.fetch()
    route.fulfill(response=response, body=response.body().replace(b'"score":0.', b'"score":0.0'))


def test_candidates_are_shown_with_scores_when_asked_for_or_when_the_score_is_low(opened):
    bodies = opened.answer("**/mobile_sam", {})
    opened.drag((90, 100), (210, 220))
    thumbnails = opened.page.locator("#candidates canvas:visible")
    expect(thumbnails).to_have_count(0)
    assert [body.get("multimask_output") for body in bodies if "box" in body] == [None]
    opened.press_button("Compare candidates")
    expect(thumbnails).to_have_count(4)
    scores = opened.page.locator("#candidates small").all_inner_texts()
    assert all(0 <= float(score) <= 1 for score in scores)
    colours = thumbnails.first.evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    assert len({tuple(colours[at : at + 4]) for at in range(0, len(colours), 4)}) > 2
    opened.press("Escape")
    expect(thumbnails).to_have_count(0)

    opened.page.route("**/mobile_sam", low_score)
    opened.click(*DISC)
    note = opened.page.locator("#candidates-note")
    expect(note).to_contain_text("alternatives")
    expect(thumbnails).to_have_count(4)
    opened.press("i")
    expect(note).to_be_hidden()


def test_mask_on_its_way_is_not_given_up_for_the_candidates(opened):
    held = opened.hold("**/mobile_sam")
    opened.page.mouse.click(*opened.screen_xy(*DISC))
    opened.wait_for(lambda: bool(held))
    opened.page.get_by_role("button", name="Compare candidates").click()
    expect(opened.page.locator("#hint")).to_have_text("Wait for the object's mask")
    opened.answer("**/mobile_sam", {})  # a request may follow the answer
    for route in held:
        route.continue_()
    opened.wait_for(lambda: opened.visible_mask().any())


def test_mask_is_clipped_to_its_box_also_in_exports(opened):
    opened.drag((120, 130), (160, 150))
    whole = opened.visible_mask()
    box = np.zeros_like(whole)
    box[130:151, 120:161] = True
    assert (whole & ~box).any()
    toggle = opened.page.get_by_label("Clip to box")
    toggle.set_checked(True)
    assert np.array_equal(opened.visible_mask(), whole & box)
    _, saved = opened.saved_annotation()
    assert np.array_equal(saved, whole & box)
    opened.press("Control+z")
    assert np.array_equal(opened.visible_mask(), whole)
    expect(toggle).not_to_be_checked()
    opened.press_button("Remove box from 120,130 to 160,150")
    expect(toggle).to_be_hidden()
