"""Parser of documentation pages, and comparison of documented with real output."""

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


def test_page_is_parsed_into_blocks():
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
    ids=["with a variable", "with a comment", "after variables", "with another command", "another program"],
)
def test_block_of_make_lines_is_recognised(code, only_make):
    assert Block("page.md", 1, "sh", code, "").only_make is only_make


@pytest.mark.parametrize(
    ("language", "shown", "printed", "same"),
    [
        pytest.param("json", '{"a": [1], "b": "x"}', '{"b": "x", "a": [2, 5]}', True, id="a longer list"),
        pytest.param("json", '{"a": [1, 2]}', '{"a": [1]}', False, id="a shorter list"),
        pytest.param("json", '{"a": [1]}', '{"a": ["1"]}', False, id="another type"),
        pytest.param("json", '{"a": 1}', '{"a": 1, "b": 2}', False, id="an additional member"),
        pytest.param("json", '{"a": 1}', '{"a": true}', False, id="a boolean for a number"),
        pytest.param("json", '{"area": 55175}', '{"area": 56000}', True, id="an area of another engine"),
        pytest.param("json", '{"area": 55175}', '{"area": 53000}', False, id="another area"),
        pytest.param("json", '{"score": 0.88}', '{"score": 0.8613}', True, id="a score of another engine"),
        pytest.param("json", '{"score": 0.88}', '{"score": 0.8513}', False, id="another score"),
        pytest.param("json", '{"name": "official"}', '{"name": "builtin"}', False, id="another text"),
        pytest.param("json", '{"sha256": "6dbb9052…"}', '{"sha256": "6dbb90523"}', True, id="an abbreviated text"),
        pytest.param("json", '{"sha256": "6dbb…"}', '{"sha256": "113b01c2"}', False, id="another abbreviated text"),
        pytest.param("json", '{"engine": {"a": "f32"}}', '{"engine": {"a": "bf16"}}', True, id="another engine"),
        pytest.param("json", '{"engine": {"a": "f32"}}', '{"engine": null}', False, id="no engine"),
        pytest.param("text", "box=(780, 174)", "box=(783,\n 171)\n", True, id="a box of another engine"),
        pytest.param("text", "box=(780, 174)", "box=(780, 178)", False, id="another box"),
        pytest.param("text", "service  http://…, ready\n──────", "service http://127.0.0.1:1, ready\n──", True, id="…"),
        pytest.param("text", "0/4\n…\n4/4\nscore 0.9", "0/4\n1/4\n4/4\nscore 0.7", False, id="a number after …"),
        pytest.param("text", "wrote 2 files", "wrote 2 pictures", False, id="another word"),
        pytest.param("text", "ready", "not ready", False, id="an additional word"),
    ],
)
def test_output_matches_within_the_differences_of_engines(language, shown, printed, same):
    assert matches(Block("page.md", 1, language, shown, ""), printed) is same
