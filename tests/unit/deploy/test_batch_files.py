"""Where a batch's images lie, and its results; without Ray, but with its Parquet library."""

from __future__ import annotations

import json

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `batch`: make batch-test")
pq = pytest.importorskip("pyarrow.parquet")

from deploy.ray.files import find_images, open_store  # noqa: E402
from deploy.ray.results import SCHEMA, Results, sha256_of  # noqa: E402
from deploy.ray.todo import BatchError  # noqa: E402

ROW = {"path": "/p/a.jpg", "sha256": "s", "asked": "{}", "weights": "w", "size": 1, "mtime_ns": 2}


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in ("b.jpg", "a.png", "deep/er/c.webp", ".hidden/d.jpg", "notes.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture
def results(tmp_path):
    store, folder = open_store(str(tmp_path / "out"))
    return Results(store, folder)


def found(place, without="/nowhere", **everything):
    store, images = find_images(str(place), without, everything)
    return store, [image.path for image in images], images


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.png", "b.jpg", "deep/er/c.webp"]),
        ("/b.jpg", ["b.jpg"]),
        ("/*.jpg", ["b.jpg"]),
        ("/**/*.webp", ["deep/er/c.webp"]),
        ("/d*/*/c.webp", ["deep/er/c.webp"]),
    ],
    ids=["folder", "image", "pattern", "pattern of folders", "pattern in folders"],
)
def test_images_are_found(photos, pattern, names):
    store, paths, images = found(f"{photos}{pattern}", points_per_side=8)
    assert paths == [f"{photos}/{name}" for name in names]
    assert {image.asked for image in images} == {'{"everything":{"points_per_side":8}}'}
    assert [store.read(path) for path in paths] == [name.encode() for name in names]
    assert [image.size for image in images] == [len(name) for name in names]


def test_results_among_the_images_are_no_images(photos):
    assert found(photos, without=f"{photos}/deep")[1] == [f"{photos}/a.png", f"{photos}/b.jpg"]


def test_list_may_name_what_is_not_there(photos, tmp_path):
    (tmp_path / "list.txt").write_text(f"{photos}/b.jpg\n\n{photos}/gone.jpg\n")
    _, paths, images = found(tmp_path / "list.txt")
    assert paths == [f"{photos}/b.jpg", f"{photos}/gone.jpg"]
    assert [image.size for image in images] == [5, None]


@pytest.mark.parametrize(
    "prompts",
    [['{"box": [1, 2, 3, 4]}', '[{"pos_coords": [[1, 2]]}]'], [[{"box": [1, 2, 3, 4], "labels": None}]] * 2],
    ids=["JSON", "structs"],
)
def test_prompts_come_from_a_column(photos, tmp_path, prompts):
    table = pa.table({"path": [f"{photos}/a.png", f"{photos}/b.jpg"], "prompts": prompts})
    pq.write_table(table, tmp_path / "list.parquet")
    _, _, images = found(tmp_path / "list.parquet")
    assert json.loads(images[0].asked) == {"prompts": [{"box": [1, 2, 3, 4]}]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nothing", "there is no such file or folder"),
        (lambda folder: folder / "*.gif", "expected PNG, JPEG or WebP files, found none"),
        (lambda folder: "moon://photos", "moon://photos: cannot be opened"),
        (lambda folder: _parquet(folder, {"file": ["a"]}), "expected a column path, and perhaps prompts, got file"),
        (lambda folder: _parquet(folder, {"path": ["a"], "prompts": ["{"]}), "expected JSON in the column prompts"),
        (lambda folder: _parquet(folder, {"path": ["a"], "prompts": ["[]"]}), r"expected prompts such as .*, got \[\]"),
        (
            lambda folder: _text(folder, "a.jpg\ns3://b/c.jpg\n"),
            "expected all .* to lie at paths of this machine",
        ),
        (lambda folder: _file(folder, "list.parquet", b"no"), "expected a Parquet file"),
    ],
    ids=["no folder", "no match", "no such system", "no column", "no JSON", "no prompts", "two places", "no Parquet"],
)
def test_what_cannot_be_used_is_told(photos, make, message):
    with pytest.raises(BatchError, match=message):
        found(make(photos))


def _file(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


def _text(folder, text):
    return _file(folder, "list.txt", text.encode())


def _parquet(folder, columns):
    pq.write_table(pa.table(columns), folder / "list.parquet")
    return folder / "list.parquet"


def test_rows_come_back_as_known(results):
    results.write("part-1.parquet", [{**ROW, "masks": []}, {**ROW, "path": "/p/b.jpg", "error": "no image"}])
    known, beyond = results.known()
    assert (known["/p/a.jpg"].sha256, known["/p/a.jpg"].part, known["/p/b.jpg"].error) == (
        "s",
        "part-1.parquet",
        "no image",
    )
    assert beyond == {}


def test_part_that_is_written_twice_is_there_once(results):
    for _ in range(2):
        results.write("part-1.parquet", [ROW])
    assert results.is_written("part-1.parquet")
    assert len(pq.read_table(results.part("part-1.parquet"))) == 1


def test_nothing_is_left_of_a_part_that_cannot_be_written(results, tmp_path):
    (tmp_path / "out" / "parts" / "part-1.parquet").mkdir(parents=True)
    with pytest.raises(OSError, match="part-1"):
        results.write("part-1.parquet", [ROW])
    assert [file.name for file in (tmp_path / "out" / "parts").iterdir()] == ["part-1.parquet"]


def test_drafts_are_no_parts(results, tmp_path):
    results.write("part-1.parquet", [ROW])
    (tmp_path / "out" / "parts" / ".part-2.parquet.abc").write_bytes(b"half")
    assert list(results.known()[0]) == ["/p/a.jpg"]


def test_rows_are_dropped_and_empty_parts_with_them(results):
    results.write("part-1.parquet", [ROW, {**ROW, "path": "/p/b.jpg"}])
    results.write("part-2.parquet", [{**ROW, "path": "/p/c.jpg"}])
    results.drop({"part-1.parquet": {"/p/a.jpg"}, "part-2.parquet": {"/p/c.jpg"}})
    assert list(results.known()[0]) == ["/p/b.jpg"]
    assert not results.is_written("part-2.parquet")
    assert pq.read_table(results.part("part-1.parquet")).schema.equals(SCHEMA)


def test_rows_beyond_one_of_an_image_are_found(results):
    results.write("part-1.parquet", [ROW])
    results.write("part-2.parquet", [ROW])
    assert results.known()[1] == {"part-2.parquet": {"/p/a.jpg"}}


@pytest.mark.parametrize("content", [b"", b"PAR1 no more PAR1"], ids=["empty", "damaged"])
def test_what_is_no_part_is_told(results, tmp_path, content):
    (tmp_path / "out" / "parts").mkdir(parents=True)
    (tmp_path / "out" / "parts" / "part-1.parquet").write_bytes(content)
    with pytest.raises(BatchError, match=r"part-1.parquet: expected a part of a batch.*take it away"):
        results.known()


def test_failures_are_listed(results, tmp_path):
    results.write("part-1.parquet", [ROW, {**ROW, "path": "/p/b.jpg", "error": "no image"}])
    results.write_failures(results.known()[0])
    assert json.loads((tmp_path / "out" / "failures.json").read_text()) == [{"file": "/p/b.jpg", "reason": "no image"}]


def test_file_that_is_gone_has_no_sha256(results, tmp_path):
    assert sha256_of(results.store, str(tmp_path / "gone")) is None
