"""What is read from a page, and when what it shows counts as what came."""

from __future__ import annotations

import pytest

from tests.e2e.pages import Block, blocks, matches

PAGE = """# A page

```sh
make serve   # and wait
```

```python
print({"one": 1})
```

```json
{"one": 2}
```

A word between.

```json
{"two": 2}
```

<!-- not run: needs a moon -->
```sh
make serve
rocket
```
"""


def test_a_page_is_read_as_blocks_that_run_are_shown_or_say_why_not():
    only_make, runs, stray, marked = blocks("page.md", PAGE)
    assert only_make.only_make
    assert not only_make.runs
    assert (runs.runs, runs.code, str(runs)) == (True, 'print({"one": 1})\n', "page.md:7")
    assert runs.shows is not None
    assert runs.shows.code == '{"one": 2}\n'
    assert (stray.runs, stray.only_make, stray.not_run, stray.shows) == (False, False, "", None)
    assert (marked.not_run, marked.runs, marked.only_make) == ("needs a moon", False, False)


@pytest.mark.parametrize(
    ("code", "only_make"),
    [
        ("make serve WEIGHTS=random\n", True),
        ("# first\n\nmake bento\n", True),
        ('A_B="1/second; 2/hour" C=key make serve\n', True),
        ("make serve &\ncurl here\n", False),
        ("cmake .\n", False),
    ],
    ids=["with a variable", "with a comment", "after variables", "beside another command", "another program"],
)
def test_a_block_of_make_lines_is_told_from_others(code, only_make):
    assert Block("page.md", 1, "sh", code, "").only_make is only_make


@pytest.mark.parametrize(
    ("language", "shown", "printed", "same"),
    [
        ("json", '{"a": [1, 2], "b": "x"}', '{"b": "y", "a": [2.5]}', True),
        ("json", '{"a": [1]}', '{"a": ["1"]}', False),
        ("json", '{"a": 1}', '{"a": 1, "b": 2}', False),
        ("json", '{"a": 1}', '{"a": true}', False),
        ("text", "wrote 2 files in 0.3 s", "wrote 40 files in 12 s\n", True),
        ("text", "service  http://…, ready\n──────", "service http://127.0.0.1:1, ready\n──", True),
        ("text", "wrote 2 files", "wrote 2 pictures", False),
        ("text", "ready", "not ready", False),
    ],
    ids=[
        "other values",
        "another kind",
        "a member more",
        "a number that is none",
        "other numbers",
        "what stands for anything",
        "another word",
        "a word more",
    ],
)
def test_what_is_shown_is_compared_by_shape(language, shown, printed, same):
    assert matches(Block("page.md", 1, language, shown, ""), printed) is same
