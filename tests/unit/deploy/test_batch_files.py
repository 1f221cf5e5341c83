"""Files of a batch: finding images and storing results. Needs pyarrow, but not Ray."""

from __future__ import annotations

import json

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `batch`: make batch-test")
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


def find(place, excluded="/nowhere", **everything):
    store, images = find_images(str(place), excluded, everything)
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
    ids=["folder", "image", "pattern", "recursive pattern", "folder pattern"],
)
def test_images_are_found(photos, pattern, names):
    store, paths, images = find(f"{photos}{pattern}", points_per_side=8)
    assert paths == [f"{photos}/{name}" for name in names]
    assert {image.asked for image in images} == {'{"everything":{"points_per_side":8}}'}
    assert [store.read(path) for path in paths] == [name.encode() for name in names]
    assert [image.size for image in images] == [len(name) for name in names]


def test_result_folder_is_excluded(photos):
    assert find(photos, excluded=f"{photos}/deep")[1] == [f"{photos}/a.png", f"{photos}/b.jpg"]


def test_list_may_contain_missing_files(photos, tmp_path):
    (tmp_path / "list.txt").write_text(f"{photos}/b.jpg\n\n{photos}/gone.jpg\n")
    _, paths, images = find(tmp_path / "list.txt")
    assert paths == [f"{photos}/b.jpg", f"{photos}/gone.jpg"]
    assert [image.size for image in images] == [5, None]


@pytest.mark.parametrize(
    "prompts",
    [['{"box": [1, 2, 3, 4]}', '[{"pos_coords": [[1, 2]]}]'], [[{"box": [1, 2, 3, 4], "labels": None}]] * 2],
    ids=["JSON", "structs"],
)
def test_prompts_are_read_from_their_column(photos, tmp_path, prompts):
    table = pa.table({"path": [f"{photos}/a.png", f"{photos}/b.jpg"], "prompts": prompts})
    pq.write_table(table, tmp_path / "list.parquet")
    _, _, images = find(tmp_path / "list.parquet")
    assert json.loads(images[0].asked) == {"prompts": [{"box": [1, 2, 3, 4]}]}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "nothing", "no such file or folder"),
        (lambda folder: folder / "*.gif", "no PNG, JPEG or WebP files found"),
        (lambda folder: "moon://photos", "moon://photos: cannot be opened"),
        (lambda folder: _parquet(folder, {"file": ["a"]}), "expected a column path and optionally prompts, got file"),
        (lambda folder: _parquet(folder, {"path": ["a"], "prompts": ["{"]}), "expected JSON in the column prompts"),
        (lambda folder: _parquet(folder, {"path": ["a"], "prompts": ["[]"]}), r"expected prompts such as .*, got \[\]"),
        (
            lambda folder: _text(folder, "a.jpg\ns3://b/c.jpg\n"),
            "expected all files of a batch at local paths",
        ),
        (lambda folder: _file(folder, "list.parquet", b"no"), "expected a Parquet file"),
    ],
    ids=["no folder", "no match", "bad scheme", "no column", "bad JSON", "no prompts", "two systems", "not Parquet"],
)
def test_invalid_input_is_reported(photos, make, message):
    with pytest.raises(BatchError, match=message):
        find(make(photos))


def _file(folder, name, content):
    (folder / name).write_bytes(content)
    return folder / name


def _text(folder, text):
    return _file(folder, "list.txt", text.encode())


def _parquet(folder, columns):
    pq.write_table(pa.table(columns), folder / "list.parquet")
    return folder / "list.parquet"


def test_rows_are_read_back(results):
    results.write("part-1.parquet", [{**ROW, "masks": []}, {**ROW, "path": "/p/b.jpg", "error": "no image"}])
    known, duplicates = results.read_known()
    assert (known["/p/a.jpg"].sha256, known["/p/a.jpg"].part, known["/p/b.jpg"].error) == (
        "s",
        "part-1.parquet",
        "no image",
    )
    assert duplicates == {}


def test_part_written_twice_exists_once(results):
    for _ in range(2):
        results.write("part-1.parquet", [ROW])
    assert results.has_part("part-1.parquet")
    assert len(pq.read_table(results.part_path("part-1.parquet"))) == 1


def test_failed_write_leaves_no_file(results, tmp_path):
    (tmp_path / "out" / "parts" / "part-1.parquet").mkdir(parents=True)
    with pytest.raises(OSError, match="part-1"):
        results.write("part-1.parquet", [ROW])
    assert [file.name for file in (tmp_path / "out" / "parts").iterdir()] == ["part-1.parquet"]


def test_temporary_files_are_not_parts(results, tmp_path):
    results.write("part-1.parquet", [ROW])
    (tmp_path / "out" / "parts" / ".part-2.parquet.abc").write_bytes(b"half")
    assert list(results.read_known()[0]) == ["/p/a.jpg"]


def test_removing_rows_deletes_empty_parts(results):
    results.write("part-1.parquet", [ROW, {**ROW, "path": "/p/b.jpg"}])
    results.write("part-2.parquet", [{**ROW, "path": "/p/c.jpg"}])
    results.remove_rows({"part-1.parquet": {"/p/a.jpg"}, "part-2.parquet": {"/p/c.jpg"}})
    assert list(results.read_known()[0]) == ["/p/b.jpg"]
    assert not results.has_part("part-2.parquet")
    assert pq.read_table(results.part_path("part-1.parquet")).schema.equals(SCHEMA)


def test_duplicate_rows_are_found(results):
    results.write("part-1.parquet", [ROW])
    results.write("part-2.parquet", [ROW])
    assert results.read_known()[1] == {"part-2.parquet": {"/p/a.jpg"}}


@pytest.mark.parametrize("content", [b"", b"PAR1 no more PAR1"], ids=["empty", "malformed"])
def test_malformed_part_is_reported(results, tmp_path, content):
    (tmp_path / "out" / "parts").mkdir(parents=True)
    (tmp_path / "out" / "parts" / "part-1.parquet").write_bytes(content)
    with pytest.raises(BatchError, match=r"part-1.parquet: not a valid part of a batch.*delete it"):
        results.read_known()


def test_failures_are_written(results, tmp_path):
    results.write("part-1.parquet", [ROW, {**ROW, "path": "/p/b.jpg", "error": "no image"}])
    results.write_failures(results.read_known()[0])
    assert json.loads((tmp_path / "out" / "failures.json").read_text()) == [{"file": "/p/b.jpg", "reason": "no image"}]


def test_missing_file_has_no_sha256(results, tmp_path):
    assert sha256_of(results.store, str(tmp_path / "gone")) is None
