"""Paths and quotes in docs/triton.md: the paths exist, and the quotes agree with the files."""

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
    """Return the paths of this repository that a page links to or writes as code."""
    code = {word for word in CODE.findall(text) if "/" in word.strip("/") and word.split("/")[0] in TOP}
    return {path for path in {*LINK.findall(text), *code} if not GENERATED.match(path)}


def quoted_from(block: Block) -> str:
    """Return the file that a quote is from."""
    return block.not_run.removeprefix("from ")


def contains(text: str, quote: str) -> bool:
    """Return whether a text has these consecutive lines, at any indentation."""
    wanted, lines = quote.splitlines(), text.splitlines()
    windows = (lines[start : start + len(wanted)] for start in range(len(lines)))
    return any(textwrap.dedent("\n".join(window)).splitlines() == wanted for window in windows)


def test_every_path_in_the_guide_exists():
    paths = named(TEXT)
    assert {"utils/triton/embedded.py", "examples/ensemble/README.md"} <= paths
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("block", QUOTES, ids=str)
def test_quotes_in_the_guide_agree_with_their_files(block):
    assert contains((ROOT / quoted_from(block)).read_text(), block.code)


@pytest.mark.parametrize("block", QUOTES, ids=str)
def test_section_of_a_quote_links_to_its_file(block):
    before = TEXT.splitlines()[: block.line]
    section = len("\n".join(before).split("\n## ")) - 1
    assert quoted_from(block) in LINK.findall(TEXT.split("\n## ")[section])


def test_every_example_is_quoted():
    examples = {path.parent.name for path in (ROOT / "examples").glob("*/service.py")}
    quoted = {Path(quoted_from(block)).parts[1] for block in QUOTES if quoted_from(block).startswith("examples/")}
    assert quoted == examples


@pytest.mark.parametrize(
    ("quote", "expected"),
    [("b\n  c\n", True), ("b\nc\n", False), ("b\n", True), ("a\nc\n", False), ("bb\n", False)],
    ids=["consecutive lines", "another indentation", "one line", "a line missing between", "an unknown line"],
)
def test_contains_finds_consecutive_lines(quote, expected):
    assert contains("a\n    b\n      c\nd\n", quote) is expected
