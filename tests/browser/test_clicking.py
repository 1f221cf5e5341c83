"""A person clicks on an image: each mask on the screen is the service's own for those clicks, pixel by pixel."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.person import asked

DISC, RED, MEADOW = (150, 160), (350, 150), (240, 290)


def test_a_click_paints_the_objects_mask_over_the_image(person, builtin_server, photo):
    person.open(photo)
    before = person.screen()
    person.click(*DISC)
    mask = person.sees()
    assert np.array_equal(mask, asked(builtin_server, photo, pos_coords=[DISC])[0])
    ys, xs = np.mgrid[:320, :480]
    disc = (xs - 150) ** 2 + (ys - 160) ** 2 <= 60**2
    assert (mask & disc).sum() / (mask | disc).sum() > 0.8

    after = person.screen()
    x, y = (round(at) for at in person.place(120, 150))
    assert np.abs(after[y, x].astype(int) - before[y, x]).max() > 30
    x, y = (round(at) for at in person.place(440, 60))
    assert np.array_equal(after[y, x], before[y, x])


def test_the_latency_of_the_click_and_the_weights_are_shown(person, photo):
    expect(person.page.locator("#weights")).to_contain_text("builtin")
    person.open(photo)
    person.click(*DISC)
    expect(person.page.locator("#latency")).to_have_text(re.compile(r"^last click \d+ ms$"))


def test_the_right_button_says_what_is_not_the_object(person, builtin_server, photo):
    person.open(photo)
    person.click(*DISC)
    person.click(*RED, button="right")
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC], neg_coords=[RED])[0])


def test_the_switch_says_so_for_the_left_button_too(person, builtin_server, photo):
    person.open(photo)
    person.click(*DISC)
    person.page.get_by_text("Not it", exact=True).click()
    person.click(*RED)
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC], neg_coords=[RED])[0])


def test_a_click_that_is_not_the_object_alone_asks_for_one_that_is(person, photo):
    person.open(photo)
    person.click(*RED, button="right")
    expect(person.page.locator("#hint")).to_contain_text("Now click on the object itself")
    assert not person.sees().any()


@pytest.mark.parametrize(
    ("start", "end"), [((290, 80), (410, 220)), ((410, 220), (290, 80))], ids=["down to the right", "up to the left"]
)
def test_a_drag_is_a_box(person, builtin_server, photo, start, end):
    person.open(photo)
    person.drag(start, end)
    assert np.array_equal(person.sees(), asked(builtin_server, photo, box=[290, 80, 410, 220])[0])


def test_undo_redo_and_clear(person, photo):
    person.open(photo)
    nothing = person.sees()
    person.click(*DISC)
    one = person.sees()
    person.click(*MEADOW)
    two = person.sees()
    assert not np.array_equal(one, two)
    person.push("Undo")
    assert np.array_equal(person.sees(), one)
    person.press("Control+z")
    assert np.array_equal(person.sees(), nothing)
    person.push("Redo")
    person.press("Control+y")
    assert np.array_equal(person.sees(), two)
    person.push("Clear this object's clicks")
    assert np.array_equal(person.sees(), nothing)
    expect(person.page.locator(".marker")).to_have_count(0)


def test_a_marker_is_removed_by_a_click_on_it(person, photo):
    person.open(photo)
    person.click(*DISC)
    one = person.sees()
    person.click(*MEADOW)
    person.page.get_by_role("button", name="Click on the object at 240, 290: remove").click()
    person.settle()
    assert np.array_equal(person.sees(), one)


def test_several_objects_in_their_colours_with_their_names(person, photo):
    person.open(photo)
    person.click(*DISC)
    disc, disc_colour = person.sees(), person.painted()[160, 150]
    person.click(*RED, keys=("Shift",))
    red, red_colour = person.sees(), person.painted()[150, 350]
    assert not np.array_equal(disc_colour, red_colour)
    assert np.array_equal(person.sees("others"), disc)

    person.click(*DISC, keys=("Control",))
    assert np.array_equal(person.sees(), disc)
    assert np.array_equal(person.sees("others"), red)

    name = person.page.get_by_label("Name of object 2")
    name.fill("a red box")
    name.press("Enter")
    person.push("New")
    expect(person.page.get_by_label("Name of object 3")).to_be_visible()
    person.press("Control+z")
    person.click(*RED, keys=("Control",))
    person.push("Hide a red box")
    assert not person.sees().any()
    person.push("Delete object 1")
    expect(person.page.locator("#objects li")).to_have_count(1)


def test_undo_takes_back_a_click_on_a_new_object_at_once(person, photo):
    person.open(photo)
    person.click(*DISC)
    person.click(*RED, keys=("Shift",))
    person.press("Control+z")
    expect(person.page.locator("#objects li")).to_have_count(1)
    assert person.sees()[DISC[1], DISC[0]]


def test_a_mask_comes_while_the_pointer_rests_on_another_row(person, photo):
    person.open(photo)
    person.click(*DISC)
    person.press("n")
    person.page.locator("#objects li").first.hover()
    person.page.locator("#view").focus()
    for key in ["Shift+ArrowRight"] * 5 + ["Enter"]:
        person.press(key)
    assert person.sees()[RED[1], RED[0]]


def test_a_double_click_is_a_click(person, photo):
    person.open(photo)
    person.page.mouse.dblclick(*person.place(*DISC))
    person.settle()
    expect(person.page.locator(".marker")).to_have_count(1)


def test_escape_ends_a_box_and_leaves_the_clicks(person, photo):
    person.open(photo)
    person.click(*DISC)
    one = person.sees()
    person.page.mouse.move(*person.place(300, 90))
    person.page.mouse.down()
    person.page.mouse.move(*person.place(400, 200), steps=3)
    person.page.keyboard.press("Escape")
    person.page.mouse.up()
    person.page.keyboard.press("b")
    person.page.keyboard.press("ArrowLeft")
    person.press("Escape")
    assert np.array_equal(person.sees(), one)
    expect(person.page.locator(".marker")).to_have_count(1)
    expect(person.page.locator("#box")).to_be_hidden()


def test_the_candidates_are_the_services_three(person, builtin_server, photo):
    person.open(photo)
    person.click(*DISC)
    candidates = asked(builtin_server, photo, pos_coords=[DISC], multimask_output=True)
    assert len(candidates) == 3
    for number, candidate in enumerate(candidates, start=1):
        person.press(str(number))
        assert np.array_equal(person.sees(), candidate)
    person.page.get_by_text("Best", exact=True).click()
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC])[0])


def test_a_click_before_the_image_is_encoded_waits_for_it(person, builtin_server, photo):
    person.page.set_input_files("#file", photo)
    person.page.wait_for_selector("#view:not([hidden])")
    person.page.locator("#hover").set_checked(False)
    person.page.mouse.click(*person.place(*DISC))
    person.page.wait_for_selector("#latency[data-milliseconds]")
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC])[0])


def test_the_preview_follows_the_pointer_and_ends_with_the_click(person, builtin_server, photo):
    person.open(photo)
    person.page.locator("#hover").set_checked(True)
    wanted = asked(builtin_server, photo, pos_coords=[DISC])[0]
    person.page.mouse.move(*person.place(20, 20))
    person.page.mouse.move(*person.place(*DISC))
    person.waits_for(lambda: np.array_equal(person.sees("preview"), wanted))
    assert not person.sees().any()
    person.click(*DISC)
    assert not person.sees("preview").any()
    assert np.array_equal(person.sees(), wanted)


def test_what_was_cleared_does_not_come_back_with_the_next_click(person, photo):
    person.open(photo)
    person.click(*DISC)
    person.press("Escape")
    held: list = []
    person.page.route("**/mobile_sam", lambda route: held.append(route))  # noqa: PLW0108 - Playwright inspects it
    person.page.mouse.click(*person.place(*RED))
    person.waits_for(lambda: bool(held))
    assert not person.sees().any()
    held.pop().continue_()
    person.settle()
    assert person.sees()[RED[1], RED[0]]
