"""Generated blocks of a page."""

from __future__ import annotations

import re

import pytest

from benchmarks import report
from benchmarks.report import BLOCKS, CLICKS_IN_PAGE, PEERS, with_blocks

PAGE = "# Page\n\n<!-- bench one -->\nold\n<!-- end -->\n\ntext\n\n<!-- bench two -->\n<!-- end -->\n"


def test_generated_blocks_are_replaced_and_other_text_is_kept():
    page = with_blocks(PAGE, {"two": r"new \1"})
    assert page == PAGE.replace("<!-- bench two -->\n", "<!-- bench two -->\nnew \\1\n")
    assert with_blocks(page, {"two": r"new \1"}) == page


def test_page_without_a_block_is_rejected():
    with pytest.raises(ValueError, match=re.escape("expected generated blocks ['three'], got")):
        with_blocks(PAGE, {"one": "", "two": "", "three": ""})


def test_marker_inside_a_line_starts_no_block():
    page = "Text after `<!-- bench one -->` is generated.\n" + PAGE
    assert with_blocks(page, {"one": "", "two": ""}).startswith(page.splitlines()[0])


def test_performance_page_has_all_generated_blocks():
    names = re.findall(r"^<!-- bench (\S+) -->$", report.PAGE.read_text(), re.MULTILINE)
    assert sorted(names) == sorted((*BLOCKS, PEERS, CLICKS_IN_PAGE))
