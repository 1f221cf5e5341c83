"""Generated blocks of a page."""

import re

import pytest

from benchmarks import report
from benchmarks.report import BLOCKS, CLICKS_IN_PAGE, PEERS, START, check_blocks, with_blocks, write_blocks

PAGE = "# Page\n\n<!-- bench one -->\nold\n<!-- end -->\n\ntext\n\n<!-- bench two -->\n<!-- end -->\n"


def test_generated_blocks_are_replaced_and_other_text_is_kept():
    page = with_blocks(PAGE, {"two": r"new \1"})
    assert page == PAGE.replace("<!-- bench two -->\n", "<!-- bench two -->\nnew \\1\n")
    assert with_blocks(page, {"two": r"new \1"}) == page


def test_blocks_are_written_into_the_pages_that_have_them(tmp_path):
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    first.write_text(PAGE)
    second.write_text("<!-- bench three -->\n<!-- end -->\n")
    write_blocks({"one": "new", "three": "3"}, [first, second])
    assert first.read_text() == PAGE.replace("old", "new")
    assert second.read_text() == "<!-- bench three -->\n3\n<!-- end -->\n"


def test_block_that_no_page_has_is_rejected(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    with pytest.raises(ValueError, match=re.escape("expected generated blocks ['three'], got ['one', 'two']")):
        check_blocks(["one", "three"], [page])


def test_marker_inside_a_line_starts_no_block():
    page = "Text after `<!-- bench one -->` is generated.\n" + PAGE
    assert with_blocks(page, {"one": "", "two": ""}).startswith(page.splitlines()[0])


def test_performance_pages_have_all_generated_blocks():
    names = [name for page in report.PAGES for name in START.findall(page.read_text())]
    assert sorted(names) == sorted((*BLOCKS, PEERS, CLICKS_IN_PAGE))
