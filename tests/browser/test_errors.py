"""Error messages, retries and banners; error responses are mocked."""

import json
import re
import time
from typing import Any

from playwright.sync_api import Route, expect

from tests.browser.page_driver import DISC, RED, PageDriver

KEY = "a-key-of-16-characters"


def problem(status: int, slug: str, title: str, detail: str, **headers: str) -> dict[str, Any]:
    body = {"type": f"urn:mobile-sam:{slug}", "title": title, "status": status, "detail": detail}
    all_headers = {
        "X-Request-ID": "the-request",
        "Content-Type": "application/problem+json",
        **headers,
    }
    return {"status": status, "headers": all_headers, "body": json.dumps(body)}


def reload_with_info(driver: PageDriver, **fields: object) -> None:
    driver.answer_info(**fields)
    driver.page.reload()


OFFLINE = re.compile(r"Offline \d+ s, 2 objects queued")
TIMEOUT = problem(504, "inference-timeout", "The answer took too long", "no answer within 55 s")


def test_error_is_reported_and_every_missing_mask_can_be_retried(opened):
    opened.answer("**/mobile_sam", TIMEOUT)
    opened.click(*DISC)
    alert = opened.page.get_by_role("alert")
    expect(alert).to_contain_text(
        "The answer took too long. no answer within 55 s Request the-request"
    )
    opened.click(*RED, keys=("Shift",))
    opened.page.unroute("**/mobile_sam")
    opened.press_button("Try again")
    expect(alert).to_be_hidden()
    opened.wait_for(lambda: opened.visible_mask("others").any() and opened.visible_mask().any())
    opened.assert_mask_is_the_apis(pos_coords=[RED])


def test_page_reconnects_and_repeats_what_failed_while_the_service_is_away(opened):
    for path in ("**/mobile_sam", "**/readyz"):
        opened.page.route(path, lambda route: route.abort())
    opened.click(*DISC)
    alert = opened.page.get_by_role("alert")
    expect(alert).to_contain_text("The service does not respond. Is it running?")
    expect(alert).to_contain_text("This page reconnects by itself.")
    opened.click(*RED, keys=("Shift",))
    expect(opened.page.locator("#connection")).to_have_text(OFFLINE)
    opened.press_button("Try again")
    opened.wait_for(lambda: sum(url.endswith("/readyz") for url in opened.requests) >= 2)
    expect(alert).to_be_visible()
    opened.page.unroute("**/mobile_sam")
    opened.page.unroute("**/readyz")
    expect(alert).to_be_hidden()
    expect(opened.page.locator("#connection")).to_be_hidden()
    opened.wait_for(lambda: opened.visible_mask("others").any() and opened.visible_mask().any())
    opened.assert_mask_is_the_apis(pos_coords=[RED])


def test_header_says_that_the_service_is_away_before_anybody_clicks(opened):
    chip = opened.page.locator("#connection")
    opened.page.route("**/readyz", lambda route: route.abort())
    expect(chip).to_have_text(re.compile(r"Offline \d+ s"))
    expect(opened.page.get_by_role("status")).to_contain_text("does not answer")
    expect(opened.page.get_by_role("alert")).to_be_hidden()
    opened.page.unroute("**/readyz")
    expect(chip).to_be_hidden()
    expect(opened.page.get_by_role("status")).to_have_text("The service is back")


def test_page_reconnects_after_a_question_that_was_never_answered(opened):
    held = opened.hold("**/readyz")
    chip = opened.page.locator("#connection")
    expect(chip).to_have_text(re.compile(r"Offline \d+ s"))
    assert held
    opened.page.unroute("**/readyz")
    expect(chip).to_be_hidden()


def test_page_reconnects_if_a_request_fails_while_it_asks(opened):
    held = opened.hold("**/readyz")
    opened.page.route("**/mobile_sam", lambda route: route.abort())
    opened.wait_for(lambda: bool(held))
    opened.click(*DISC)
    chip = opened.page.locator("#connection")
    expect(chip).to_have_text(re.compile(r"Offline [2-9] s"))  # it has asked again by then
    for path in ("**/readyz", "**/mobile_sam"):
        opened.answer(path, {})
    held[0].abort()
    expect(chip).to_be_hidden()
    opened.wait_for(lambda: opened.visible_mask().any())


def test_busy_service_is_retried_after_retry_after_and_an_uncached_image_is_sent_again(opened):
    busy = problem(503, "overloaded", "Busy", "too many", **{"Retry-After": "1"})
    held = opened.hold("**/mobile_sam")
    opened.page.mouse.click(*opened.screen_xy(*DISC))
    for count in (1, 2):  # the first is for the press, which the click repeats
        opened.wait_for(lambda: len(held) == count)  # noqa: B023
        held[-1].fulfill(**busy)
    expect(opened.page.locator("#busy")).to_have_text("The service is busy. Retrying in 1 s")
    chip = opened.page.locator("#connection")
    expect(chip).to_have_text(re.compile(r"Busy \d+ s, 1 object queued"))
    opened.wait_for(lambda: len(held) == 3)
    opened.page.wait_for_timeout(500)
    expect(opened.page.locator("#busy")).to_have_text("The service is busy. Retrying in 1 s")
    held[-1].continue_()
    opened.wait_for(lambda: opened.visible_mask().any())
    expect(opened.page.locator("#busy")).to_be_hidden()
    expect(chip).to_be_hidden()
    opened.press("n")
    bodies = opened.answer(
        "**/mobile_sam", problem(404, "image-not-cached", "Not known", "send it again"), {}
    )
    opened.click(*RED)
    assert opened.visible_mask().any()
    assert ["input_image" in body for body in bodies] == [False, True]
    expect(opened.page.get_by_role("alert")).to_be_hidden()


def test_busy_service_is_not_waited_for_after_a_stop(opened):
    busy = problem(503, "overloaded", "Busy", "too many", **{"Retry-After": "30"})
    opened.page.route("**/everything", lambda route: route.fulfill(**busy))
    opened.page.keyboard.press("e")
    chip = opened.page.locator("#connection")
    expect(chip).to_have_text(re.compile(r"Busy \d+ s"))
    opened.page.get_by_role("button", name="Stop").click()
    expect(chip).to_be_hidden()


def test_stopping_service_is_not_called_busy(opened):
    stopping = problem(503, "stopping", "Stops", "the service is stopping", **{"Retry-After": "1"})
    opened.page.route("**/mobile_sam", lambda route: route.fulfill(**stopping))
    opened.page.mouse.click(*opened.screen_xy(*DISC))
    expect(opened.page.locator("#busy")).to_have_text("The service is stopping. Retrying in 1 s")
    opened.page.unroute("**/mobile_sam")
    opened.wait_for(lambda: opened.visible_mask().any())


def test_api_key_is_requested_used_and_stored_for_the_tab(driver, photo):
    unauthorized = problem(
        401, "unauthorized", "An API key is needed", "got no key", **{"WWW-Authenticate": "Bearer"}
    )

    def guard(route: Route) -> None:
        has_key = route.request.headers.get("authorization") == f"Bearer {KEY}"
        route.continue_() if has_key else route.fulfill(**unauthorized)

    for path in ("**/embed", "**/mobile_sam"):
        driver.page.route(path, guard)
    driver.page.set_input_files("#file", photo)
    field = driver.page.get_by_label("This service requires an API key")
    expect(field).to_be_focused()
    for key in ("a key that cannot be sent: €", "wrong-key-of-16-chars", KEY):
        field.fill(key)
        field.press("Enter")
        if key != KEY:
            problem_text = "without spaces" if " " in key else "does not know this key"

            def problem_is_shown(problem_text=problem_text):
                return problem_text in field.evaluate("field => field.validationMessage")

            driver.wait_for(problem_is_shown)
            assert driver.page.evaluate("sessionStorage.length") == 0
    driver.wait_encoded(photo)
    expect(field).to_be_hidden()
    expect(driver.page.get_by_role("alert")).to_be_hidden()
    driver.click(*DISC)
    assert driver.visible_mask().any()
    assert KEY not in driver.page.content()
    driver.page.reload()
    driver.open(photo)
    expect(field).to_be_hidden()
    driver.page.evaluate("sessionStorage.clear()")
    reload_with_info(driver, key_needed=True)
    expect(field).to_be_visible()


def limited(seconds: int) -> dict[str, Any]:
    detail = f"rate limit exceeded (40 requests per hour); retry in {seconds} s"
    return problem(
        429, "too-many-requests", "Too many requests", detail, **{"Retry-After": str(seconds)}
    )


def test_preview_pauses_until_the_rate_limit_allows_requests(opened):
    held = opened.hold("**/mobile_sam")
    opened.page.locator("#hover").set_checked(True)
    opened.page.mouse.move(*opened.screen_xy(*DISC))
    opened.wait_for(lambda: len(held) == 1)
    bodies = opened.answer("**/mobile_sam", {})
    opened.page.mouse.move(*opened.screen_xy(*RED))
    began = time.monotonic()
    held[0].fulfill(**limited(4))
    expect(opened.page.locator("#hint")).to_have_text(
        "The rate limit of this address is reached (40 requests per hour). It allows requests again"
        " in 4 s. Previews pause and come back by themselves."
    )
    opened.wait_for(lambda: bodies != [])
    assert time.monotonic() - began >= 4
    opened.wait_for(lambda: opened.visible_mask("preview").any())
    assert [body["pos_coords"] for body in bodies] == [[list(RED)]]
    expect(opened.page.locator("#hover")).to_be_checked()


def test_rate_limit_is_named_and_no_preview_is_sent_until_it_allows_requests(open_page, photo):
    with open_page(script=f"sessionStorage.setItem('mobile-sam-key', '{KEY}')") as driver:
        driver.open(photo)
        bodies = driver.answer("**/mobile_sam", limited(170), limited(170), {})
        driver.page.mouse.click(*driver.screen_xy(*DISC))
        expect(driver.page.get_by_role("alert")).to_contain_text(
            "Too many requests. The rate limit of this key is reached (40 requests per hour)."
            " It allows requests again in 3 min."
        )
        driver.page.locator("#hover").set_checked(True)
        driver.press("n")  # previews are for new objects
        driver.page.mouse.move(*driver.screen_xy(*RED))
        driver.press_button("Try again")
        driver.wait_for(lambda: driver.visible_mask("others").any())
        # Of the press, the click, and again.
        assert [body["pos_coords"] for body in bodies] == 3 * [[list(DISC)]]


def test_weights_are_named_with_a_warning_a_note_or_nothing(driver):
    banner = driver.page.locator("#banner")
    expect(driver.page.locator("#weights")).to_contain_text("builtin")
    expect(banner).to_have_text(
        "Built-in weights. The official MobileSAM weights give better masks."
    )
    expect(banner).not_to_have_class("warning")
    reload_with_info(
        driver,
        weights={"sha256": "0", "name": "random", "trained": False, "note": "They mean nothing."},
    )
    expect(banner).to_have_text(re.compile(r"Untrained weights\.\s+They mean nothing\."))
    expect(banner).to_have_class("warning")
    reload_with_info(
        driver,
        weights={"sha256": "0", "name": "our-fine-tune", "trained": True, "note": "A checkpoint."},
    )
    expect(driver.page.locator("#weights")).to_contain_text("our-fine-tune")
    expect(banner).to_be_hidden()
