"""YAML whose scalars are text: both of PyYAML's parsers say the same of the corpus."""

from pathlib import Path

import pytest
import yaml

from mobile_sam_client._datasets.texts import decode
from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._datasets.yaml_text import load_text

CORPUS = Path(__file__).parents[4] / "formats" / "yolo"
FILES = sorted(CORPUS.glob("*/input/data.yaml"))


def result(text: str, loader: type) -> object:
    try:
        return load_text(text, loader)
    except DatasetError as error:
        return str(error).partition(" while ")[0]  # the parsers describe what is no YAML differently


@pytest.mark.parametrize("path", FILES, ids=[path.parts[-3] for path in FILES])
def test_parsers_in_python_and_c_agree(path):
    text = decode(path.read_bytes())
    assert result(text, yaml.BaseLoader) == result(text, yaml.CBaseLoader)


def test_corpus_has_files():
    assert len(FILES) > 20


@pytest.mark.parametrize("loader", [yaml.BaseLoader, yaml.CBaseLoader])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: " + "1" + ":59" * 1000, {"a": "1" + ":59" * 1000}),
        ("", None),
        ("[1, 2.0, ~, {a: }]", ["1", "2.0", "~", {"a": ""}]),
        ("a: !!str 012", {"a": "012"}),
        ("- |\n  no\n", ["no\n"]),
    ],
    ids=["sexagesimal number", "empty", "types", "tag of text", "block"],
)
def test_scalars_are_text_as_written(loader, text, expected):
    assert load_text(text, loader) == expected


@pytest.mark.parametrize("loader", [yaml.BaseLoader, yaml.CBaseLoader])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 1000, "line 1: lists and maps are too deep"),
        ("? [a]\n: b", r'line 1: expected a key as text, got \["a"\]'),
        ("x: &a 1\ny: *a", "line 1: anchors and aliases are not read"),
        ("x: 1\n<<: {a: b}", "line 2: merges are not read"),
        ("x: !mine 1", 'line 1: the tag "!mine" is not read'),
        ("# tags\n%TAG !a! tag:x\n---\nx: 1", "line 2: the directive %TAG is not read"),
    ],
    ids=["deep", "list as a key", "alias", "merge", "tag", "directive"],
)
def test_what_is_more_than_text_is_refused(loader, text, message):
    with pytest.raises(DatasetError, match=message):
        load_text(text, loader)


def test_number_of_entries_is_bounded():
    with pytest.raises(DatasetError, match="the file has too many entries"):
        load_text("- a\n" * 2**18)
