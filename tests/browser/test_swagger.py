"""The Swagger page works offline and its example runs."""

import numpy as np
from playwright.sync_api import expect


def test_swagger_example_returns_200_and_links_to_the_page(person):
    person.page.goto(f"{person.server.url}/")
    operation = person.page.locator("#operations-Segmentation-mobile_sam")
    operation.locator(".opblock-summary-control").first.click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    status = operation.locator(".live-responses-table tbody .response-col_status").first
    expect(status).to_have_text("200")
    person.page.locator("a[href='ui']").first.click()
    expect(person.page.get_by_role("heading", name="Click an object to segment it")).to_be_visible()


def test_swagger_page_follows_the_colour_scheme_with_enough_contrast(person):
    person.page.goto(f"{person.server.url}/")
    person.page.locator("#operations-Segmentation-mobile_sam").wait_for()
    for scheme in ("light", "dark"):
        person.page.emulate_media(color_scheme=scheme)
        linear = (person.screenshot() / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722]
        background = np.median(linear)
        assert (background < 0.05) == (scheme == "dark")
        text = np.quantile(linear, 0.995 if scheme == "dark" else 0.005)
        lighter, darker = sorted([text, background], reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 4.5
