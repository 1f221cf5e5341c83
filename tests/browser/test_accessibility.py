"""Accessibility checks with axe-core in every state of the page."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.person import Person

SERIOUS_IMPACTS = {"serious", "critical"}
CONTEXTS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 393, "height": 727}, "is_mobile": True, "has_touch": True},
}


def violations(page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in found
        if rule["impact"] in SERIOUS_IMPACTS
    ]


@pytest.mark.parametrize("options", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_page_states_have_no_serious_violations(browser, builtin_server, photo, options):
    with Person.open_page(browser, builtin_server, **options) as person:
        person.page.wait_for_selector("#banner:not([hidden])")
        assert violations(person.page) == []
        person.open(photo)
        person.click(150, 160)
        person.click(240, 290, button="right")
        person.drag((290, 80), (410, 220))
        assert violations(person.page) == []
        person.page.route("**/mobile_sam", lambda route: route.abort())
        person.click(30, 30, keys=("Shift",))
        person.page.wait_for_selector("#alert:not([hidden])")
        assert violations(person.page) == []
        person.page.get_by_role("button", name="Help and shortcuts").click()
        assert violations(person.page) == []


def test_axe_detects_an_unnamed_button(person):
    person.page.evaluate("document.body.append(document.createElement('button'))")
    assert violations(person.page)


def test_result_is_announced_to_screen_readers(person, photo):
    person.open(photo)
    person.click(150, 160)
    person.wait_for(lambda: "object 1: " in person.page.get_by_role("status").inner_text())
    assert "% of the image, score 0." in person.page.get_by_role("status").inner_text()
