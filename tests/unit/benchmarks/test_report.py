"""The generated parts of a page."""

from __future__ import annotations

import re

import pytest

from benchmarks import report
from benchmarks.report import BLOCKS, CLICKS_IN_PAGE, PEERS, with_blocks

PAGE = "# Page\n\n<!-- bench one -->\nold\n<!-- end -->\n\ntext\n\n<!-- bench two -->\n<!-- end -->\n"


def test_generated_parts_are_replaced_and_the_rest_is_left_alone():
    page = with_blocks(PAGE, {"one": r"new \1", "two": "| a |"})
    expected = (
        "# Page\n\n<!-- bench one -->\nnew \\1\n<!-- end -->\n\ntext\n\n<!-- bench two -->\n| a |\n<!-- end -->\n"
    )
    assert page == expected


def test_page_written_again_is_the_same():
    blocks = {"one": "1", "two": "2"}
    assert with_blocks(with_blocks(PAGE, blocks), blocks) == with_blocks(PAGE, blocks)


def test_page_keeps_the_parts_that_are_not_made_anew():
    assert with_blocks(PAGE, {"two": "| a |"}) == PAGE.replace("<!-- bench two -->\n", "<!-- bench two -->\n| a |\n")


def test_page_without_a_part_is_refused():
    with pytest.raises(ValueError, match=re.escape("expected a generated part for each of ['three'], got")):
        with_blocks(PAGE, {"one": "", "two": "", "three": ""})


def test_text_that_speaks_of_the_marks_is_no_generated_part():
    page = "What stands after `<!-- bench one -->` is generated.\n" + PAGE
    assert with_blocks(page, {"one": "", "two": ""}).startswith(page.splitlines()[0])


def test_performance_page_has_the_parts_that_are_generated():
    parts = re.findall(r"^<!-- bench (\S+) -->$", report.PAGE.read_text(), re.MULTILINE)
    assert sorted(parts) == sorted((*BLOCKS, PEERS, CLICKS_IN_PAGE))
