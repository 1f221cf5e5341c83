"""Quotes in docs/triton.md agree with the files."""

import textwrap
from pathlib import Path

import pytest

from tests.e2e.pages import blocks
from tests.e2e.server import ROOT

PAGE = "docs/triton.md"
TEXT = (ROOT / PAGE).read_text()
QUOTES = [(block.not_run.removeprefix("from "), block) for block in blocks(PAGE, TEXT) if block.not_run[:5] == "from "]


@pytest.mark.parametrize(("file", "block"), QUOTES, ids=[str(block) for _, block in QUOTES])
def test_quote_agrees_with_its_file_and_links_to_it(file, block):
    lines = "\n" + (ROOT / file).read_text()
    assert any("\n" + textwrap.indent(block.code, " " * depth) in lines for depth in range(0, 17, 4))
    before = "\n".join(TEXT.splitlines()[: block.line])
    section = TEXT.split("\n## ")[before.count("\n## ")]
    assert f"](../{file})" in section


def test_every_example_is_quoted():
    examples = {path.parent.name for path in (ROOT / "examples").glob("*/service.py")}
    assert examples <= {Path(file).parts[1] for file, _ in QUOTES if file.startswith("examples/")}
