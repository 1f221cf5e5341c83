"""Time from a click to its painted mask: recorded but not judged, because the machine may be busy."""

import pytest

from benchmarks.page import VIEWPORT, as_table, measure, write_annotations
from benchmarks.photo import photo as two_megapixels
from benchmarks.raw import RawModel


@pytest.mark.slow
def test_click_latency_is_measured_and_recorded(browser, builtin_server, builtin_repository, tmp_path, record_property):
    (tmp_path / "photo.jpg").write_bytes(two_megapixels())
    objects = write_annotations(builtin_server.url, tmp_path / "objects.json", 3)
    page, raw = browser.new_page(viewport=VIEWPORT), RawModel(builtin_repository)
    clicks = measure(page, builtin_server.url, tmp_path / "photo.jpg", raw, clicks=3, objects=objects)
    page.close()
    record_property("measured", as_table([("at once", clicks)]))
    assert len(clicks.painted) == 3
    assert all(painted >= service > 0 for painted, service in zip(clicks.painted, clicks.service, strict=True))
