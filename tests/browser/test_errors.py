"""What goes wrong is told in words, and can be tried again; errors are stood in for where the service would not err."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from playwright.sync_api import Route, expect

from tests.browser.person import Person, asked

DISC = (150, 160)
KEY = "a-key-of-16-characters"


def problem(status: int, slug: str, title: str, detail: str, **headers: str) -> dict:
    body = {"type": f"urn:mobile-sam:{slug}", "title": title, "status": status, "detail": detail}
    kept = {"X-Request-ID": "the-request", "Content-Type": "application/problem+json", **headers}
    return {"status": status, "headers": kept, "body": json.dumps(body)}


def test_a_refusal_is_shown_with_its_reason_and_request_and_tried_again(person, builtin_server, photo):
    person.open(photo)
    refusal = problem(504, "inference-timeout", "The answer took too long", "no answer within 55 s")
    person.page.route("**/mobile_sam", lambda route: route.fulfill(**refusal))
    person.click(*DISC)
    alert = person.page.get_by_role("alert")
    expect(alert).to_contain_text("The answer took too long. no answer within 55 s Request the-request")
    person.page.unroute("**/mobile_sam")
    person.push("Try again")
    expect(alert).to_be_hidden()
    person.waits_for(lambda: person.sees().any())
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC])[0])


def test_a_service_that_is_gone_is_told_so(person, photo):
    person.open(photo)
    person.page.route("**/mobile_sam", lambda route: route.abort())
    person.click(*DISC)
    expect(person.page.get_by_role("alert")).to_contain_text("The service does not answer. Is it running?")


def test_trying_again_asks_for_every_mask_that_did_not_come(person, photo):
    person.open(photo)
    person.page.route("**/mobile_sam", lambda route: route.abort())
    person.click(*DISC)
    person.click(350, 150, keys=("Shift",))
    person.page.unroute("**/mobile_sam")
    person.push("Try again")
    person.waits_for(lambda: person.sees("others").any() and person.sees().any())


def test_an_answer_of_something_else_is_told_in_words(person, photo):
    person.open(photo)
    person.page.route("**/mobile_sam", lambda route: route.fulfill(content_type="text/html", body="<h1>Welcome</h1>"))
    person.click(*DISC)
    expect(person.page.get_by_role("alert")).to_contain_text("what answers here is not this service")


def test_a_proxy_in_between_that_refuses_is_told_by_its_status(person, photo):
    person.open(photo)
    person.page.route(
        "**/mobile_sam", lambda route: route.fulfill(status=502, content_type="text/html", body="<h1>Bad</h1>")
    )
    person.click(*DISC)
    expect(person.page.get_by_role("alert")).to_contain_text("status 502, without a reason")


def test_a_busy_service_is_asked_again_when_it_says(person, photo):
    person.open(photo)
    refusals = [problem(503, "overloaded", "Busy", "too many requests wait", **{"Retry-After": "1"})]

    def answer(route: Route) -> None:
        if refusals:
            route.fulfill(**refusals.pop())
        else:
            route.continue_()

    person.page.route("**/mobile_sam", answer)
    person.page.mouse.click(*person.place(*DISC))
    expect(person.page.locator("#busy")).to_have_text("The service is busy; asking again in 1 s")
    person.waits_for(lambda: person.sees().any())
    expect(person.page.locator("#busy")).to_be_hidden()
    expect(person.page.get_by_role("alert")).to_be_hidden()


def test_an_image_that_the_service_has_forgotten_is_sent_again(person, photo):
    person.open(photo)
    forgotten = problem(404, "image-not-cached", "The image is not known", "send it again")
    bodies = []

    def answer(route: Route) -> None:
        bodies.append(route.request.post_data_json or {})
        if "image_id" in bodies[-1] and len(bodies) == 1:
            route.fulfill(**forgotten)
        else:
            route.continue_()

    person.page.route("**/mobile_sam", answer)
    person.click(*DISC)
    assert person.sees().any()
    assert ["input_image" in body for body in bodies] == [False, True]
    expect(person.page.get_by_role("alert")).to_be_hidden()


def test_a_key_is_asked_for_used_and_kept_for_the_tab(person, photo):
    wanted = problem(401, "unauthorized", "An API key is needed", "got no key", **{"WWW-Authenticate": "Bearer"})

    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == f"Bearer {KEY}":
            route.continue_()
        else:
            route.fulfill(**wanted)

    for path in ("**/embed", "**/mobile_sam"):
        person.page.route(path, guard)
    person.page.set_input_files("#file", photo)
    field = person.page.get_by_label("This service wants an API key")
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
    assert person.sees().any()
    assert KEY not in person.page.content()
    person.page.reload()
    person.open(photo)
    expect(field).to_be_hidden()


def test_where_a_key_is_needed_it_is_asked_for_at_once(person):
    def answer(route: Route) -> None:
        information = route.fetch()
        route.fulfill(response=information, json={**information.json(), "key_needed": True})

    person.page.route("**/info", answer)
    person.page.reload()
    expect(person.page.get_by_label("This service wants an API key")).to_be_visible()


def test_previews_end_where_the_service_does_not_want_them(person, photo):
    person.open(photo)
    busy = problem(429, "too-many-requests", "Too many requests", "at most 60 per minute", **{"Retry-After": "30"})
    person.page.route("**/mobile_sam", lambda route: route.fulfill(**busy))
    person.page.locator("#hover").set_checked(True)
    person.page.mouse.move(*person.place(20, 20))
    person.page.mouse.move(*person.place(*DISC))
    expect(person.page.locator("#hover")).not_to_be_checked()
    expect(person.page.locator("#hint")).to_have_text("The service is busy: no preview for now")


def test_weights_untrained_get_a_warning(person):
    shown_with(person, name="random", trained=False, note="Its masks mean nothing.")
    expect(person.page.locator("#banner.warning")).to_have_text(
        re.compile(r"Untrained weights\.\s+Its masks mean nothing\.")
    )


def test_weights_builtin_get_a_hint(person):
    expect(person.page.locator("#banner:not(.warning)")).to_have_text(
        re.compile(r"^\s*Built-in weights\. The official MobileSAM weights segment better\.\s*$")
    )


@pytest.mark.parametrize("name", ["official", "our-fine-tune"])
def test_weights_of_a_checkpoint_get_no_banner(person, name):
    shown_with(person, name=name, trained=True, note="A checkpoint.")
    expect(person.page.locator("#weights")).to_contain_text(name)
    expect(person.page.locator("#banner")).to_be_hidden()


def shown_with(person: Person, **weights: object) -> None:
    """Load the page again, from a service that names other weights."""

    def answer(route: Route) -> None:
        information = route.fetch()
        route.fulfill(response=information, json={**information.json(), "weights": {"sha256": "0", **weights}})

    person.page.route("**/info", answer)
    person.page.reload()
