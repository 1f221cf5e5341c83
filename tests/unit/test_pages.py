"""Parser of documentation pages, and comparison of documented with real output."""

import pytest

from tests.e2e.pages import Block, blocks, matches

PAGE = """# A page

```sh
# first
A_B="1/second; 2/hour" C=key make serve   # and wait
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
    assert (only_make.only_make, only_make.runs) == (True, False)
    assert (runs.runs, runs.code, str(runs)) == (True, 'print({"one": 1})\n', "page.md:8")
    assert runs.shows is not None
    assert runs.shows.code == '{"one": 2}\n'
    assert (stray.runs, stray.only_make, stray.not_run, stray.shows) == (False, False, "", None)
    assert (marked.not_run, marked.runs, marked.only_make) == ("needs a moon", False, False)


@pytest.mark.parametrize(
    ("language", "shown", "same", "different"),
    [
        pytest.param("json", '{"a": [1], "b": "x"}', '{"b": "x", "a": [2, 5]}', '{"a": [1]}', id="members"),
        pytest.param("json", '{"a": [1, 2]}', '{"a": [1, 2, 3]}', '{"a": [1]}', id="beginning of a list"),
        pytest.param("json", '{"a": 1}', '{"a": 2}', '{"a": true}', id="type"),
        pytest.param("json", '{"area": 55175}', '{"area": 56000}', '{"area": 53000}', id="area"),
        pytest.param("json", '{"score": 0.88}', '{"score": 0.8613}', '{"score": 0.8513}', id="score"),
        pytest.param("json", '{"sha256": "6dbb…"}', '{"sha256": "6dbb90523"}', '{"sha256": "113b01"}', id="text"),
        pytest.param("json", '{"engine": {"a": "f32"}}', '{"engine": {"a": "bf16"}}', '{"engine": null}', id="engine"),
        pytest.param("text", "box=(780, 174)", "box=(783,\n 171)\n", "box=(780, 178)", id="box"),
        pytest.param("text", "at  http://…, up\n──────", "at http://127.0.0.1:1, up\n──", "up", id="rule and …"),
        pytest.param("text", "0/4\n…\nscore 0.9", "0/4\n1/4\nscore 0.9", "0/4\n1/4\nscore 0.7", id="lines and …"),
        pytest.param("text", "wrote 2 files", "wrote 2 files", "wrote 2 pictures", id="word"),
    ],
)
def test_output_matches_within_the_differences_of_engines(language, shown, same, different):
    block = Block("page.md", 1, language, shown, "")
    assert matches(block, same)
    assert not matches(block, different)
