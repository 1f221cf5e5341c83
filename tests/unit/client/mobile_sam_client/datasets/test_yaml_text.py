"""YAML whose scalars are text: both of PyYAML's parsers say the same of the corpus."""

from pathlib import Path

import pytest
import yaml

from mobile_sam_client._datasets import yaml_text
from mobile_sam_client._datasets.texts import decode
from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._datasets.yaml_text import load_text

CORPUS = Path(__file__).parents[4] / "formats" / "yolo"
FILES = sorted(CORPUS.glob("*/input/data.yaml"))


def result(text: str, loader: type) -> object:
    try:
        return load_text(text, loader)
    except DatasetError as error:
        # The parsers describe what is no YAML differently.
        return str(error).partition(" while ")[0]


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


MANY = 2**18
CLASSES = 21_841
"""As many as ImageNet-21k has."""


@pytest.mark.parametrize("loader", [yaml.BaseLoader, yaml.CBaseLoader])
@pytest.mark.parametrize(
    "text",
    [
        "- a\n" * MANY,
        "names: [" + "a, " * MANY + "]",
        "[" + "[]," * MANY + "]",
        "{" + "? a," * MANY + "}",
    ],
    ids=["block list", "flow list", "empty lists", "flow map"],
)
def test_no_more_than_the_largest_number_of_entries_is_parsed(loader, text, monkeypatch):
    parse, parsed = yaml.parse, []

    def counted(text, Loader):  # noqa: N803  (PyYAML's name)
        for event in parse(text, Loader=Loader):
            parsed.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    monkeypatch.setattr(yaml_text, "MAX_EVENTS", 1000)
    with pytest.raises(
        DatasetError, match=r"line \d+: (the file has too many entries|a is there twice)"
    ):
        load_text(text, loader)
    assert len(parsed) <= 1001


def test_number_of_entries_is_bounded():
    with pytest.raises(DatasetError, match="the file has too many entries"):
        load_text("- a\n" * yaml_text.MAX_EVENTS)


@pytest.mark.parametrize("form", ["block map", "flow list"])
def test_largest_list_of_classes_in_use_is_read(form):
    names = [f"class {number}" for number in range(CLASSES)]
    if form == "flow list":
        document = load_text(f"names: [{', '.join(names)}]")
        assert document == {"names": names}
        return
    document = load_text(
        "names:\n" + "".join(f"  {number}: {name}\n" for number, name in enumerate(names))
    )
    assert list(document["names"].values()) == names
