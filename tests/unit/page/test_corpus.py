"""The page's readers with the label files in tests/formats: objects, classes, and messages.

The command line's readers run through the same files.
"""

from typing import Any

import pytest

from tests.unit.page.corpus import CASES, assert_is_right, project_of
from tests.unit.page.formats import run


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """What the page has read, by the name of the case."""
    projects = [project_of(path) for path in CASES.values()]
    return dict(zip(CASES, run("readAll", projects=projects), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_label_files_are_read_right_by_the_page(name, results):
    assert_is_right(name, results[name])


@pytest.mark.parametrize("form", ["coco", "yolo", "voc", "labelme"])
def test_corpus_has_cases_of_each_format_that_the_page_reads(form):
    names = [name for name in CASES if name.startswith(f"{form}/")]
    assert f"{form}/plain" in names
    assert len(names) > 10
