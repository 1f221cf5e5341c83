"""Segmenting everything: many objects at once, each as good as one that was clicked on."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

from tests.browser.person import asked


def test_everything_is_found_shown_and_undone_at_once(person, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("8")
    person.push("Start")
    person.page.wait_for_selector("#progress", state="hidden")
    rows = person.page.locator("#objects li")
    expect(person.page.locator("#hint")).to_contain_text("objects found")
    assert rows.count() > 1
    assert (person.sees() | person.sees("others")).mean() > 0.5
    person.press("Control+z")
    expect(rows).to_have_count(1)
    assert not person.sees("others").any()


def test_a_click_on_a_found_object_goes_on_from_the_click_that_found_it(person, builtin_server, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("8")
    person.push("Start")
    person.page.wait_for_selector("#progress", state="hidden")
    person.click(150, 160)
    assert person.sees()[160, 150]
    expect(person.page.locator(".marker")).to_have_count(0)
    person.click(240, 290, button="right")
    marker = person.page.locator(".marker.positive").get_attribute("aria-label")
    x, y = (
        int(number) for number in marker.removeprefix("Click on the object at ").removesuffix(": remove").split(", ")
    )
    wanted = asked(builtin_server, photo, pos_coords=[[x, y]], neg_coords=[[240, 290]])[0]
    assert np.array_equal(person.sees(), wanted)


def test_asking_twice_is_asking_once(person, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("8")
    person.page.keyboard.press("e")
    person.page.keyboard.press("e")
    person.page.wait_for_selector("#progress", state="hidden")
    expect(person.page.locator("#hint")).to_contain_text("objects found")
    assert sum(url.endswith("/everything") for url in person.requests) == 1


def test_it_can_be_stopped(person, photo):
    person.open(photo)
    person.page.get_by_label("Grid").select_option("32")
    person.push("Start")
    person.push("Stop")
    person.page.wait_for_selector("#progress", state="hidden")
    expect(person.page.locator("#objects li")).to_have_count(1)
    expect(person.page.get_by_role("alert")).to_be_hidden()
    person.click(150, 160)
    assert person.sees()[160, 150]
