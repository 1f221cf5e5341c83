"""How the page is loaded: what is requested when, and what the browser keeps."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser, expect

from benchmarks.page_load import Visit, visit
from harness import Server
from tests.browser.page_driver import TIMEOUT_S, PageDriver

NEVER_IDLE = "window.requestIdleCallback = () => {};"
"""Script of a browser in which nothing is loaded ahead."""
HAS_LOADED_AHEAD = """() => {
  const files = performance.getEntriesByType("resource").map(({ name }) => name);
  const code = files.find((name) => name.endsWith("/transfer.js"));
  return code !== undefined && import(code).then(() => true);
}"""
"""Whether the page has loaded the code that it loads once it is idle, which imports more of it."""


@pytest.fixture(scope="module")
def visits(browser: Browser, builtin_server: Server) -> tuple[Visit, Visit]:
    """The first and the second visit of a browser."""
    context = browser.new_context()
    context.set_default_timeout(1000 * TIMEOUT_S)
    first, second = (
        visit(context, builtin_server.url, lambda page: page.wait_for_function(HAS_LOADED_AHEAD))
        for _ in range(2)
    )
    context.close()
    return first, second


def test_second_visit_is_one_request(visits, builtin_server):
    first, second = visits
    assert second.sent == [f"{builtin_server.url}/ui"]
    assert second.later == []
    assert {*second.cached} >= {*first.sent[1:]}


def test_everything_but_the_html_is_immutable(visits, builtin_server):
    first, _ = visits
    html, *files = first.sent
    assert html == f"{builtin_server.url}/ui"
    for url in [*files, *first.later]:
        assert "immutable" in requests.head(url, timeout=60).headers["Cache-Control"], url


def test_no_module_is_requested_before_the_page_is_usable_but_those_that_it_preloads(
    visits, builtin_server
):
    first, _ = visits
    html = requests.get(first.sent[0], timeout=60).text
    listed = re.findall(r'(?:modulepreload" href|module" src)="([^"]+\.js)"', html)
    sent = [url.removeprefix(f"{builtin_server.url}/") for url in first.sent]
    assert sorted(path for path in sent if path.endswith(".js")) == sorted(listed)
    assert any(url.endswith("/transfer.js") for url in first.later)


def test_code_that_cannot_be_loaded_is_an_error_until_it_can(
    open_page: Callable[..., AbstractContextManager[PageDriver]], photo: Path
):
    with open_page(script=NEVER_IDLE) as driver:
        driver.open(photo)
        driver.page.route("**/transfer.js", lambda route: route.abort())
        driver.press_button("Export")
        expect(driver.page.locator("#alert")).to_contain_text("could not be loaded")
        expect(driver.page.locator("#export")).to_be_hidden()
        driver.page.unroute("**/transfer.js")
        driver.press_button("Export")
        expect(driver.page.locator("#export")).to_be_visible()
