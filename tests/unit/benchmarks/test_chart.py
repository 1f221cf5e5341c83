"""Charts of the documentation."""

from benchmarks.chart import DOCS, charts


def test_charts_of_the_documentation_have_the_figures_of_its_tables():
    drawn = charts()
    assert {name: (DOCS / "images" / name).read_text() for name in drawn} == drawn
    assert drawn["speed.svg"].count("<rect") == 1 + 4
    assert drawn["quality.svg"].count("<rect") == 1 + 8
