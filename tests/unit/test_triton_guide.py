"""What docs/triton.md names is there, and what it quotes stands in the files that it names."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.e2e.pages import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = "docs/triton.md"
TEXT = (ROOT / PAGE).read_text()
QUOTES = [block for block in blocks(PAGE, TEXT) if block.not_run.startswith("from ")]
TOP = {entry.name for entry in ROOT.iterdir()}
GENERATED = re.compile(r"^model_repository/\w+/\d+/(model\.onnx|weights\.json)$")
LINK, CODE = re.compile(r"\]\(\.\./([^)#\s]+)[^)]*\)"), re.compile(r"`([\w./-]+)`")


def named(text: str) -> set[str]:
    """The paths of this repository that a page links to or writes as code."""
    code = {word for word in CODE.findall(text) if "/" in word.strip("/") and word.split("/")[0] in TOP}
    return {path for path in {*LINK.findall(text), *code} if not GENERATED.match(path)}


def quoted_from(block: Block) -> str:
    """The file that a quote says it is from."""
    return block.not_run.removeprefix("from ")


def stands_in(quote: str, text: str) -> bool:
    """Whether a text has these lines, one after the other, wherever they are indented to."""
    wanted, lines = quote.splitlines(), text.splitlines()
    windows = (lines[start : start + len(wanted)] for start in range(len(lines)))
    return any(textwrap.dedent("\n".join(window)).splitlines() == wanted for window in windows)


def test_every_path_that_the_guide_names_is_there():
    paths = named(TEXT)
    assert {"utils/embedded.py", "examples/ensemble/README.md"} <= paths
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("block", QUOTES, ids=str)
def test_what_the_guide_quotes_stands_in_the_file_that_it_names(block):
    assert stands_in(block.code, (ROOT / quoted_from(block)).read_text())


@pytest.mark.parametrize("block", QUOTES, ids=str)
def test_the_section_of_a_quote_links_to_its_file(block):
    before = TEXT.splitlines()[: block.line]
    section = len("\n".join(before).split("\n## ")) - 1
    assert quoted_from(block) in LINK.findall(TEXT.split("\n## ")[section])


def test_each_of_the_four_examples_is_quoted():
    examples = {path.parent.name for path in (ROOT / "examples").glob("*/service.py")}
    quoted = {Path(quoted_from(block)).parts[1] for block in QUOTES if quoted_from(block).startswith("examples/")}
    assert quoted == examples


@pytest.mark.parametrize(
    ("quote", "stands"),
    [("b\n  c\n", True), ("b\nc\n", False), ("b\n", True), ("a\nc\n", False), ("bb\n", False)],
    ids=["lines of it", "another indentation", "a line", "lines with one left out", "a line that is not there"],
)
def test_a_quote_is_lines_that_follow_each_other(quote, stands):
    assert stands_in(quote, "a\n    b\n      c\nd\n") is stands
