"""Plan of a batch: images to segment, and rows to remove before. Needs neither Ray nor pyarrow."""

import sys

import pytest

from deploy.ray.__main__ import main
from deploy.ray.plan import Image, make_plan

IMAGE = Image("/p/a.jpg", 10, 20, "{}")
ROW = {
    **IMAGE._asdict(),
    "weights": "weights",
    "error": None,
    "sha256": "same",
    "part": "part-1.parquet",
}


def plan(rows, image=IMAGE, sha256="same"):
    """Return the plan for one image, whose file now has a SHA-256."""
    return make_plan({image.path: image}, rows, "weights", lambda _: sha256)


def test_image_is_segmented_unless_a_row_matches():
    assert plan([]) == ([IMAGE], {})
    assert plan([ROW], sha256="not read") == ([], {})


@pytest.mark.parametrize(
    "change",
    [{"asked": '{"everything":{}}'}, {"weights": "others"}, {"error": "no image"}],
    ids=["other request", "other weights", "failed before"],
)
def test_image_with_outdated_row_is_segmented_again(change):
    assert plan([ROW | change]) == ([IMAGE], {"part-1.parquet": {IMAGE.path}})


@pytest.mark.parametrize(
    "change",
    [{"size": 11}, {"mtime_ns": 21}, {"mtime_ns": None}, {"size": None, "mtime_ns": None}],
    ids=["other size", "other time", "unknown time", "missing"],
)
def test_image_with_other_size_or_time_is_segmented_again_if_its_bytes_changed(change):
    image = IMAGE._replace(**change)
    assert plan([ROW], image) == ([], {})
    assert plan([ROW], image, "other") == ([image], {"part-1.parquet": {IMAGE.path}})


def test_second_row_of_an_image_is_removed():
    rows = [ROW, ROW | {"part": "part-2.parquet"}, ROW | {"path": "/p/unlisted.jpg"}]
    assert plan(rows) == ([], {"part-2.parquet": {IMAGE.path}})


def test_command_names_the_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SystemExit, match="install the extra `batch` with `make env-batch`"):
        main()
