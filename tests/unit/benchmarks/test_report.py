"""Generated blocks of a page."""

import re

import pytest

from benchmarks import report
from benchmarks.report import (
    AHEAD,
    BLOCKS,
    CAPACITY,
    CLICKS_IN_PAGE,
    LOCAL,
    PEERS,
    SCALE,
    START,
    check_blocks,
    with_blocks,
)

PAGE = "# Page\n\n<!-- bench one -->\nold\n<!-- end -->\n\ntext\n\n<!-- bench two -->\n<!-- end -->\n"


def test_generated_blocks_are_replaced_and_other_text_is_kept():
    page = with_blocks(PAGE, {"two": r"new \1"})
    assert page == PAGE.replace("<!-- bench two -->\n", "<!-- bench two -->\nnew \\1\n")
    assert with_blocks(page, {"two": r"new \1"}) == page


def test_block_that_no_page_has_is_rejected(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(ValueError, match=re.escape("expected generated blocks ['three'], got ['one', 'two']")):
        check_blocks(["one", "three"], [page])


def test_performance_pages_have_all_generated_blocks():
    names = [name for page in report.PAGES for name in START.findall(page.read_text())]
    assert sorted(names) == sorted((*BLOCKS, PEERS, CLICKS_IN_PAGE, AHEAD, LOCAL, CAPACITY, SCALE))
