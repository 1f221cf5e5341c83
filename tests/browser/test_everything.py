"""Segment everything, and editing the objects it finds."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

from tests.browser.person import request_masks


def test_segment_everything_is_one_undoable_step(person, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("8")
    person.press_button("Start")
    person.page.wait_for_selector("#progress", state="hidden")
    rows = person.page.locator("#objects li")
    expect(person.page.locator("#hint")).to_contain_text("objects found")
    assert rows.count() > 1
    assert (person.visible_mask() | person.visible_mask("others")).mean() > 0.5
    person.press("Control+z")
    expect(rows).to_have_count(1)
    assert not person.visible_mask("others").any()


def test_click_on_a_found_object_keeps_its_grid_click(person, builtin_server, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("8")
    person.press_button("Start")
    person.page.wait_for_selector("#progress", state="hidden")
    person.click(150, 160)
    assert person.visible_mask()[160, 150]
    expect(person.page.locator(".marker")).to_have_count(0)
    person.click(240, 290, button="right")
    marker = person.page.locator(".marker.positive").get_attribute("aria-label")
    x, y = (int(number) for number in marker.removeprefix("Remove positive click at ").split(", "))
    expected = request_masks(builtin_server, photo, pos_coords=[[x, y]], neg_coords=[[240, 290]])[0]
    assert np.array_equal(person.visible_mask(), expected)


def test_segment_everything_ignores_a_second_start(person, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("8")
    person.page.keyboard.press("e")
    person.page.keyboard.press("e")
    person.page.wait_for_selector("#progress", state="hidden")
    expect(person.page.locator("#hint")).to_contain_text("objects found")
    assert sum(url.endswith("/everything") for url in person.requests) == 1


def test_segment_everything_can_be_stopped(person, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("32")
    person.press_button("Start")
    person.press_button("Stop")
    person.page.wait_for_selector("#progress", state="hidden")
    expect(person.page.locator("#objects li")).to_have_count(1)
    expect(person.page.get_by_role("alert")).to_be_hidden()
    person.click(150, 160)
    assert person.visible_mask()[160, 150]
