"""The Swagger page: it is there without the rest of the world, and its example runs."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.person import Person


def test_execute_answers_200_and_the_page_to_click_on_is_linked(browser, builtin_server):
    with Person.at(browser, builtin_server) as person:
        person.page.goto(f"{builtin_server.url}/")
        operation = person.page.locator("#operations-Segmentation-mobile_sam")
        operation.locator(".opblock-summary-control").first.click()
        operation.get_by_role("button", name="Try it out").click()
        operation.get_by_role("button", name="Execute").click()
        status = operation.locator(".live-responses-table tbody .response-col_status").first
        expect(status).to_have_text("200", timeout=20_000)
        person.page.locator("a[href='ui']").first.click()
        expect(person.page.get_by_role("heading", name="Click on an image, get the object")).to_be_visible()
