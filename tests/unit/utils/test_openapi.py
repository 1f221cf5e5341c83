"""The OpenAPI document and the page around it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from utils.openapi import EXAMPLE, PAGE, VERSION, document, pages
from utils.prompts import SegmentRequest, to_prompt


def test_every_reference_leads_somewhere():
    text = str(document())
    names = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert names
    assert names <= set(document()["components"]["schemas"])


def test_the_example_is_a_valid_request():
    assert to_prompt(SegmentRequest.model_validate(EXAMPLE | {"pos_coords": [(80, 60)]})).labels.tolist() == [1]


def test_errors_are_declared_as_problems():
    responses = document()["paths"]["/mobile_sam"]["post"]["responses"]
    for status in ("400", "413", "415", "422", "500", "503", "504"):
        assert list(responses[status]["content"]) == ["application/problem+json"]


def test_the_page_names_the_weights_in_use(tmp_path):
    record = tmp_path / "mobile_sam" / "1" / "weights.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"name": "mine", "note": "Made at home."}')
    assert b"Weights in use: **mine**. Made at home." in pages(tmp_path)["/docs.json"].body


@pytest.mark.parametrize("content", [None, "", "[]", '{"name": 1}'])
def test_weights_that_are_not_described_are_not_named(tmp_path, content):
    if content is not None:
        (tmp_path / "mobile_sam" / "1").mkdir(parents=True)
        (tmp_path / "mobile_sam" / "1" / "weights.json").write_text(content)
    assert b"Weights in use" not in pages(tmp_path)["/docs.json"].body


def test_the_page_asks_no_other_host():
    assert "://" not in PAGE


def test_the_version_is_the_packages():
    assert f'version = "{VERSION}"' in (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text()
