"""Error messages, retries and banners; error responses are mocked."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from playwright.sync_api import Route, expect

from tests.browser.person import Person, request_masks

DISC = (150, 160)
KEY = "a-key-of-16-characters"


def problem(status: int, slug: str, title: str, detail: str, **headers: str) -> dict:
    body = {"type": f"urn:mobile-sam:{slug}", "title": title, "status": status, "detail": detail}
    all_headers = {"X-Request-ID": "the-request", "Content-Type": "application/problem+json", **headers}
    return {"status": status, "headers": all_headers, "body": json.dumps(body)}


def test_error_shows_detail_and_request_id_and_can_be_retried(person, builtin_server, photo):
    person.open(photo)
    refusal = problem(504, "inference-timeout", "The answer took too long", "no answer within 55 s")
    person.page.route("**/mobile_sam", lambda route: route.fulfill(**refusal))
    person.click(*DISC)
    alert = person.page.get_by_role("alert")
    expect(alert).to_contain_text("The answer took too long. no answer within 55 s Request the-request")
    person.page.unroute("**/mobile_sam")
    person.press_button("Try again")
    expect(alert).to_be_hidden()
    person.wait_for(lambda: person.visible_mask().any())
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC])[0])


def test_unreachable_service_is_reported(person, photo):
    person.open(photo)
    person.page.route("**/mobile_sam", lambda route: route.abort())
    person.click(*DISC)
    expect(person.page.get_by_role("alert")).to_contain_text("The service does not respond. Is it running?")


def test_retry_requests_every_missing_mask(person, photo):
    person.open(photo)
    person.page.route("**/mobile_sam", lambda route: route.abort())
    person.click(*DISC)
    person.click(350, 150, keys=("Shift",))
    person.page.unroute("**/mobile_sam")
    person.press_button("Try again")
    person.wait_for(lambda: person.visible_mask("others").any() and person.visible_mask().any())


def test_foreign_response_is_reported(person, photo):
    person.open(photo)
    person.page.route("**/mobile_sam", lambda route: route.fulfill(content_type="text/html", body="<h1>Welcome</h1>"))
    person.click(*DISC)
    expect(person.page.get_by_role("alert")).to_contain_text("did not come from this service")


def test_proxy_error_is_reported_by_status(person, photo):
    person.open(photo)
    person.page.route(
        "**/mobile_sam", lambda route: route.fulfill(status=502, content_type="text/html", body="<h1>Bad</h1>")
    )
    person.click(*DISC)
    expect(person.page.get_by_role("alert")).to_contain_text("status 502 without an explanation")


def test_busy_service_is_retried_after_retry_after(person, photo):
    person.open(photo)
    refusals = [problem(503, "overloaded", "Busy", "too many requests wait", **{"Retry-After": "1"})]

    def answer(route: Route) -> None:
        if refusals:
            route.fulfill(**refusals.pop())
        else:
            route.continue_()

    person.page.route("**/mobile_sam", answer)
    person.page.mouse.click(*person.screen_xy(*DISC))
    expect(person.page.locator("#busy")).to_have_text("The service is busy. Retrying in 1 s")
    person.wait_for(lambda: person.visible_mask().any())
    expect(person.page.locator("#busy")).to_be_hidden()
    expect(person.page.get_by_role("alert")).to_be_hidden()


def test_uncached_image_is_sent_again(person, photo):
    person.open(photo)
    not_cached = problem(404, "image-not-cached", "The image is not known", "send it again")
    bodies = []

    def answer(route: Route) -> None:
        bodies.append(route.request.post_data_json or {})
        if "image_id" in bodies[-1] and len(bodies) == 1:
            route.fulfill(**not_cached)
        else:
            route.continue_()

    person.page.route("**/mobile_sam", answer)
    person.click(*DISC)
    assert person.visible_mask().any()
    assert ["input_image" in body for body in bodies] == [False, True]
    expect(person.page.get_by_role("alert")).to_be_hidden()


def test_api_key_is_requested_used_and_stored_for_the_tab(person, photo):
    unauthorized = problem(401, "unauthorized", "An API key is needed", "got no key", **{"WWW-Authenticate": "Bearer"})

    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == f"Bearer {KEY}":
            route.continue_()
        else:
            route.fulfill(**unauthorized)

    for path in ("**/embed", "**/mobile_sam"):
        person.page.route(path, guard)
    person.page.set_input_files("#file", photo)
    field = person.page.get_by_label("This service requires an API key")
    expect(field).to_be_focused()
    field.fill("a key that cannot be sent: €")
    field.press("Enter")
    expect(field).to_be_visible()
    assert person.page.evaluate("sessionStorage.length") == 0
    field.fill("wrong-key-of-16-chars")
    field.press("Enter")
    expect(person.page.get_by_role("alert")).to_contain_text("An API key is needed. got no key")
    field.fill(KEY)
    field.press("Enter")
    expect(person.page.locator("#about")).to_have_text(re.compile("480 . 320 pixels"))
    expect(field).to_be_hidden()
    expect(person.page.get_by_role("alert")).to_be_hidden()
    person.page.locator("#hover").set_checked(False)
    person.click(*DISC)
    assert person.visible_mask().any()
    assert KEY not in person.page.content()
    person.page.reload()
    person.open(photo)
    expect(field).to_be_hidden()


def test_api_key_is_requested_on_load_when_needed(person):
    def answer(route: Route) -> None:
        info_response = route.fetch()
        route.fulfill(response=info_response, json={**info_response.json(), "key_needed": True})

    person.page.route("**/info", answer)
    person.page.reload()
    expect(person.page.get_by_label("This service requires an API key")).to_be_visible()


def test_preview_is_switched_off_when_rate_limited(person, photo):
    person.open(photo)
    busy = problem(429, "too-many-requests", "Too many requests", "at most 60 per minute", **{"Retry-After": "30"})
    person.page.route("**/mobile_sam", lambda route: route.fulfill(**busy))
    person.page.locator("#hover").set_checked(True)
    person.page.mouse.move(*person.screen_xy(20, 20))
    person.page.mouse.move(*person.screen_xy(*DISC))
    expect(person.page.locator("#hover")).not_to_be_checked()
    expect(person.page.locator("#hint")).to_have_text("The service is busy: preview switched off")


def test_untrained_weights_show_a_warning(person):
    reload_with_weights(person, name="random", trained=False, note="Its masks mean nothing.")
    expect(person.page.locator("#banner.warning")).to_have_text(
        re.compile(r"Untrained weights\.\s+Its masks mean nothing\.")
    )


def test_builtin_weights_show_a_note(person):
    expect(person.page.locator("#banner:not(.warning)")).to_have_text(
        re.compile(r"^\s*Built-in weights\. The official MobileSAM weights give better masks\.\s*$")
    )


@pytest.mark.parametrize("name", ["official", "our-fine-tune"])
def test_checkpoint_weights_show_no_banner(person, name):
    reload_with_weights(person, name=name, trained=True, note="A checkpoint.")
    expect(person.page.locator("#weights")).to_contain_text(name)
    expect(person.page.locator("#banner")).to_be_hidden()


def reload_with_weights(person: Person, **weights: object) -> None:
    """Reload the page with other weights in `/info`."""

    def answer(route: Route) -> None:
        info_response = route.fetch()
        route.fulfill(response=info_response, json={**info_response.json(), "weights": {"sha256": "0", **weights}})

    person.page.route("**/info", answer)
    person.page.reload()
