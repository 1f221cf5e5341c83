"""Clicking on images: displayed masks equal the API's masks for the same prompts, pixel by pixel."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.person import request_masks

DISC, RED, MEADOW = (150, 160), (350, 150), (240, 290)


def test_click_paints_the_mask_over_the_image(person, builtin_server, photo):
    person.open(photo)
    before = person.screenshot()
    person.click(*DISC)
    mask = person.visible_mask()
    assert np.array_equal(mask, request_masks(builtin_server, photo, pos_coords=[DISC])[0])
    ys, xs = np.mgrid[:320, :480]
    disc = (xs - 150) ** 2 + (ys - 160) ** 2 <= 60**2
    assert (mask & disc).sum() / (mask | disc).sum() > 0.8

    after = person.screenshot()
    x, y = (round(at) for at in person.screen_xy(120, 150))
    assert np.abs(after[y, x].astype(int) - before[y, x]).max() > 30
    x, y = (round(at) for at in person.screen_xy(440, 60))
    assert np.array_equal(after[y, x], before[y, x])


def test_header_shows_click_latency_and_weights(person, photo):
    expect(person.page.locator("#weights")).to_contain_text("builtin")
    person.open(photo)
    person.click(*DISC)
    expect(person.page.locator("#latency")).to_have_text(re.compile(r"^last click \d+ ms$"))


def test_right_click_adds_a_negative_click(person, builtin_server, photo):
    person.open(photo)
    person.click(*DISC)
    person.click(*RED, button="right")
    assert np.array_equal(
        person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC], neg_coords=[RED])[0]
    )


def test_exclude_mode_makes_left_clicks_negative(person, builtin_server, photo):
    person.open(photo)
    person.click(*DISC)
    person.page.get_by_text("Exclude", exact=True).click()
    person.click(*RED)
    assert np.array_equal(
        person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC], neg_coords=[RED])[0]
    )


def test_negative_click_alone_hints_to_click_the_object(person, photo):
    person.open(photo)
    person.click(*RED, button="right")
    expect(person.page.locator("#hint")).to_contain_text("Now click the object itself")
    assert not person.visible_mask().any()


@pytest.mark.parametrize(
    ("start", "end"), [((290, 80), (410, 220)), ((410, 220), (290, 80))], ids=["down to the right", "up to the left"]
)
def test_drag_draws_a_box(person, builtin_server, photo, start, end):
    person.open(photo)
    person.drag(start, end)
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, box=[290, 80, 410, 220])[0])


def test_undo_redo_and_clear_restore_masks(person, photo):
    person.open(photo)
    empty = person.visible_mask()
    person.click(*DISC)
    first = person.visible_mask()
    person.click(*MEADOW)
    both = person.visible_mask()
    assert not np.array_equal(first, both)
    person.press_button("Undo")
    assert np.array_equal(person.visible_mask(), first)
    person.press("Control+z")
    assert np.array_equal(person.visible_mask(), empty)
    person.press_button("Redo")
    person.press("Control+y")
    assert np.array_equal(person.visible_mask(), both)
    person.press_button("Clear this object's clicks")
    assert np.array_equal(person.visible_mask(), empty)
    expect(person.page.locator(".marker")).to_have_count(0)


def test_click_on_a_marker_removes_it(person, photo):
    person.open(photo)
    person.click(*DISC)
    first = person.visible_mask()
    person.click(*MEADOW)
    person.page.get_by_role("button", name="Remove positive click at 240, 290").click()
    person.wait_idle()
    assert np.array_equal(person.visible_mask(), first)


def test_objects_have_own_colours_and_names(person, photo):
    person.open(photo)
    person.click(*DISC)
    disc, disc_colour = person.visible_mask(), person.layer_rgba()[160, 150]
    person.click(*RED, keys=("Shift",))
    red, red_colour = person.visible_mask(), person.layer_rgba()[150, 350]
    assert not np.array_equal(disc_colour, red_colour)
    assert np.array_equal(person.visible_mask("others"), disc)

    person.click(*DISC, keys=("Control",))
    assert np.array_equal(person.visible_mask(), disc)
    assert np.array_equal(person.visible_mask("others"), red)

    name = person.page.get_by_label("Name of object 2")
    name.fill("a red box")
    name.press("Enter")
    person.press_button("New")
    expect(person.page.get_by_label("Name of object 3")).to_be_visible()
    person.press("Control+z")
    person.click(*RED, keys=("Control",))
    person.press_button("Hide a red box")
    assert not person.visible_mask().any()
    person.press_button("Delete object 1")
    expect(person.page.locator("#objects li")).to_have_count(1)


def test_undo_reverts_a_click_and_its_new_object_in_one_step(person, photo):
    person.open(photo)
    person.click(*DISC)
    person.click(*RED, keys=("Shift",))
    person.press("Control+z")
    expect(person.page.locator("#objects li")).to_have_count(1)
    assert person.visible_mask()[DISC[1], DISC[0]]


def test_mask_is_painted_while_another_row_is_hovered(person, photo):
    person.open(photo)
    person.click(*DISC)
    person.press("n")
    person.page.locator("#objects li").first.hover()
    person.page.locator("#view").focus()
    for key in ["Shift+ArrowRight"] * 5 + ["Enter"]:
        person.press(key)
    assert person.visible_mask()[RED[1], RED[0]]


def test_double_click_counts_as_one_click(person, photo):
    person.open(photo)
    person.page.mouse.dblclick(*person.screen_xy(*DISC))
    person.wait_idle()
    expect(person.page.locator(".marker")).to_have_count(1)


def test_escape_cancels_a_box_and_keeps_the_clicks(person, photo):
    person.open(photo)
    person.click(*DISC)
    first = person.visible_mask()
    person.page.mouse.move(*person.screen_xy(300, 90))
    person.page.mouse.down()
    person.page.mouse.move(*person.screen_xy(400, 200), steps=3)
    person.page.keyboard.press("Escape")
    person.page.mouse.up()
    person.page.keyboard.press("b")
    person.page.keyboard.press("ArrowLeft")
    person.press("Escape")
    assert np.array_equal(person.visible_mask(), first)
    expect(person.page.locator(".marker")).to_have_count(1)
    expect(person.page.locator("#box")).to_be_hidden()


def test_candidates_match_the_api(person, builtin_server, photo):
    person.open(photo)
    person.click(*DISC)
    candidates = request_masks(builtin_server, photo, pos_coords=[DISC], multimask_output=True)
    assert len(candidates) == 3
    for number, candidate in enumerate(candidates, start=1):
        person.press(str(number))
        assert np.array_equal(person.visible_mask(), candidate)
    person.page.get_by_text("Best", exact=True).click()
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC])[0])


def test_click_before_encoding_waits_for_the_embedding(person, builtin_server, photo):
    person.page.set_input_files("#file", photo)
    person.page.wait_for_selector("#view:not([hidden])")
    person.page.locator("#hover").set_checked(False)
    person.page.mouse.click(*person.screen_xy(*DISC))
    person.page.wait_for_selector("#latency[data-milliseconds]")
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC])[0])


def test_preview_follows_the_pointer_until_the_click(person, builtin_server, photo):
    person.open(photo)
    person.page.locator("#hover").set_checked(True)
    expected = request_masks(builtin_server, photo, pos_coords=[DISC])[0]
    person.page.mouse.move(*person.screen_xy(20, 20))
    person.page.mouse.move(*person.screen_xy(*DISC))
    person.wait_for(lambda: np.array_equal(person.visible_mask("preview"), expected))
    assert not person.visible_mask().any()
    person.click(*DISC)
    assert not person.visible_mask("preview").any()
    assert np.array_equal(person.visible_mask(), expected)


def test_cleared_mask_does_not_reappear_with_the_next_click(person, photo):
    person.open(photo)
    person.click(*DISC)
    person.press("Escape")
    held: list = []
    person.page.route("**/mobile_sam", lambda route: held.append(route))  # noqa: PLW0108 - Playwright inspects it
    person.page.mouse.click(*person.screen_xy(*RED))
    person.wait_for(lambda: bool(held))
    assert not person.visible_mask().any()
    held.pop().continue_()
    person.wait_idle()
    assert person.visible_mask()[RED[1], RED[0]]
