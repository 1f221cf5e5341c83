"""The Swagger page, and the responses for `/` and `/docs.json`."""

import json
import re

import pytest

from utils.api.openapi import document, pages
from utils.api.openapi.document import PAGE


@pytest.mark.parametrize("metrics", [False, True], ids=["public metrics", "protected metrics"])
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
def test_pages_show_the_configured_service(keys, metrics):
    responses = pages(need_key=keys, metrics_need_key=metrics)
    assert set(responses) == {"/", "/docs", "/docs.json", "/openapi.json"}
    assert (responses["/docs"], responses["/openapi.json"]) == (responses["/"], responses["/docs.json"])
    assert json.loads(bytes(responses["/docs.json"].body)) == document(need_key=keys, metrics_need_key=metrics)
    assert bytes(responses["/"].body).decode() == PAGE


def test_page_links_to_the_ui_and_to_the_document():
    assert re.findall(r'<a href="([^"]+)"', PAGE.partition("<noscript>")[0]) == ["ui", "docs.json"]
