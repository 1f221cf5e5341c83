"""Keyboard control of the page."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

from tests.browser.person import request_masks


def test_keys_click_and_draw_a_box(person, builtin_server, photo):
    person.open(photo)
    person.page.locator("#view").focus()
    for _ in range(4):
        person.page.keyboard.press("Shift+ArrowLeft")
    for _ in range(10):
        person.page.keyboard.press("ArrowLeft")
    person.press("Enter")
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[[150, 160]])[0])
    person.page.keyboard.press("Shift+ArrowRight")
    person.press("Shift+Enter")
    assert np.array_equal(
        person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[[150, 160]], neg_coords=[[170, 160]])[0]
    )

    person.press("n")
    person.page.keyboard.press("b")
    for key in ["Shift+ArrowDown"] * 3 + ["Shift+ArrowRight"] * 5:
        person.page.keyboard.press(key)
    person.press("b")
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, box=[170, 160, 270, 220])[0])
    assert person.visible_mask("others").any()


def test_shortcuts_match_the_help(person, photo):
    person.open(photo)
    person.page.keyboard.press("?")
    expect(person.page.get_by_role("dialog")).to_be_visible()
    person.page.keyboard.press("Escape")
    expect(person.page.get_by_role("dialog")).to_be_hidden()
    person.page.keyboard.press("x")
    expect(person.page.get_by_label("Exclude")).to_be_checked()
    person.page.keyboard.press("h")
    expect(person.page.locator("#hover")).to_be_checked()
    person.page.keyboard.press("h")
    person.page.keyboard.press("]")
    expect(person.page.get_by_label("Opacity")).to_have_value("60")
    person.page.keyboard.press("+")
    zoomed = person.page.locator("#zoom-fit").inner_text()
    person.page.keyboard.press("0")
    assert person.page.locator("#zoom-fit").inner_text() != zoomed


def test_typing_a_name_triggers_no_shortcuts(person, photo):
    person.open(photo)
    person.click(150, 160)
    name = person.page.get_by_label("Name of object 1")
    name.fill("")
    name.press_sequentially("next box 3")
    name.press("Enter")
    expect(person.page.locator("#objects li")).to_have_count(1)
    expect(person.page.get_by_label("Name of next box 3")).to_be_visible()


def test_tab_reaches_every_control(person, photo):
    person.open(photo)
    person.click(150, 160)
    reached = set()
    for _ in range(60):
        person.page.keyboard.press("Tab")
        reached.add(person.page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {
        "view",
        "undo",
        "clear",
        "new-object",
        "everything",
        "opacity",
        "save-mask",
        "another",
        "marker positive",
    } <= reached
