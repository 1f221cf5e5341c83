"""The Swagger page, and what the service answers to `/` and `/docs.json`."""

from __future__ import annotations

import json
import re

import pytest

from utils.bento import static_files
from utils.openapi import document, pages
from utils.openapi.page import PAGE


@pytest.mark.parametrize("metrics", [False, True], ids=["open metrics", "metrics by key"])
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
def test_the_page_is_of_the_service_as_it_is_set_up(keys, metrics):
    answered = pages(need_key=keys, metrics_need_key=metrics)
    assert set(answered) == {"/", "/docs.json"}
    assert json.loads(bytes(answered["/docs.json"].body)) == document(need_key=keys, metrics_need_key=metrics)
    assert bytes(answered["/"].body).decode() == PAGE


def test_the_page_asks_no_other_host():
    assert "://" not in PAGE


def test_the_page_loads_files_that_are_there():
    loaded = re.findall(r'(?:src|rel="[^>]*href)="\.(/[^"]+)"', PAGE)
    assert len(loaded) == 5
    assert set(loaded) <= static_files()


def test_the_page_leads_to_the_page_to_click_on_and_to_the_document():
    assert re.findall(r'<a href="([^"]+)"', PAGE.partition("<noscript>")[0]) == ["ui", "docs.json"]
