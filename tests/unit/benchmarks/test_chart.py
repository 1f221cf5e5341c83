"""Charts of the documentation."""

from benchmarks.chart import DOCS, charts, timeline


def test_charts_of_the_documentation_have_the_figures_of_its_tables():
    drawn = charts()
    assert {name: (DOCS / "images" / name).read_text() for name in drawn} == drawn
    assert drawn["speed.svg"].count("<rect") == 1 + 4
    assert drawn["quality.svg"].count("<rect") == 1 + 8


def test_timeline_has_a_dot_for_each_time_and_a_bar_for_each_event():
    drawn = timeline([(0, 10), (50, 1000), (100, 100)], {"kill": (50, 60)})
    assert 'cx="380.0" cy="140.0"' in drawn
    assert '<rect x="380.0" y="40" width="64.0"' in drawn
    assert drawn.count("<circle") == 3
