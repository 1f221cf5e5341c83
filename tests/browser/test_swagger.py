"""The Swagger page works offline and its example runs."""

from playwright.sync_api import expect


def test_swagger_example_returns_200_and_links_to_the_page(driver):
    driver.page.goto(f"{driver.server.url}/")
    operation = driver.page.locator("#operations-Segmentation-mobile_sam")
    operation.locator(".opblock-summary-control").first.click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    status = operation.locator(".live-responses-table tbody .response-col_status").first
    expect(status).to_have_text("200")
    driver.page.locator("a[href='ui']").first.click()
    expect(driver.page.get_by_role("heading", name="Click an object to segment it")).to_be_visible()
