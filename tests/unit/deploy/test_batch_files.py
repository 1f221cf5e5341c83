"""Files of a batch: finding images and storing results. Needs pyarrow, but not Ray."""

import hashlib
import json

import pytest

pa = pytest.importorskip("pyarrow", reason="not installed: pyarrow: make env-batch")
pq = pytest.importorskip("pyarrow.parquet")

from deploy.ray.errors import BatchError  # noqa: E402
from deploy.ray.files import find_dataset, find_images, open_store  # noqa: E402
from deploy.ray.results import SCHEMA, Results  # noqa: E402

ROW = {"path": "/p/a.jpg", "sha256": "s", "asked": "{}", "weights": "w", "size": 1, "mtime_ns": 2}
FAILED = {**ROW, "path": "/p/b.jpg", "error": "no image"}


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / ".photos"
    for name in (
        "b.JPG",
        "a.png",
        "deep/er/c.webp",
        "deep/(1)+.jpeg",
        ".hidden/d.jpg",
        ".e.jpg",
        "notes.md",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return folder


@pytest.fixture
def results(tmp_path):
    return Results(*open_store(str(tmp_path / "out")))


PARTS = ["part-1.parquet", "part-2.parquet"]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["a.png", "b.JPG", "deep/(1)+.jpeg", "deep/er/c.webp"]),
        ("/b.JPG", ["b.JPG"]),
        ("/*.*", ["a.png", "b.JPG"]),
        ("/**/*e*", ["deep/(1)+.jpeg", "deep/er/c.webp"]),
        ("/d*/*/c.webp", ["deep/er/c.webp"]),
        ("/deep/(1)+.*", ["deep/(1)+.jpeg"]),
    ],
    ids=["folder", "image", "pattern", "recursive pattern", "folder pattern", "regex characters"],
)
def test_images_are_found(photos, pattern, names):
    store, images = find_images(f"{photos}{pattern}", "/nowhere", {"points_per_side": 8})
    assert sorted(images) == [f"{photos}/{name}" for name in names]
    assert {image.asked for image in images.values()} == {'{"everything":{"points_per_side":8}}'}
    for path, image in images.items():
        assert store.read(path).decode() == path.removeprefix(f"{photos}/")
        assert (image.size, image.mtime_ns) == (
            len(store.read(path)),
            (photos / path).stat().st_mtime_ns,
        )


def test_list_may_contain_missing_files_and_repeated_ones_without_the_result_folder(
    photos, tmp_path
):
    (tmp_path / "list.txt").write_text(
        f"{photos}/b.JPG\n\n{photos}/gone.jpg\n{photos}/b.JPG\n{photos}/deep/a.png\n"
    )
    store, images = find_images(str(tmp_path / "list.txt"), f"{photos}/deep", {})
    assert [(path, image.size) for path, image in images.items()] == [
        (f"{photos}/b.JPG", 5),
        (f"{photos}/gone.jpg", None),
    ]
    sha256 = hashlib.sha256(b"b.JPG").hexdigest()
    assert [*map(store.sha256, images)] == [sha256, None]


@pytest.mark.parametrize(
    "prompts",
    [['{"box": [1, 2, 3, 4]}', None], [[{"box": [1, 2, 3, 4], "labels": None}], None]],
    ids=["JSON", "structs"],
)
def test_prompts_are_read_from_their_column(photos, tmp_path, prompts):
    table = pa.table({"path": [f"{photos}/a.png", f"{photos}/b.JPG"], "prompts": prompts})
    pq.write_table(table, tmp_path / "list.parquet")
    _, images = find_images(str(tmp_path / "list.parquet"), "/nowhere", {})
    assert [image.asked for image in images.values()] == [
        '{"prompts":[{"box":[1,2,3,4]}]}',
        '{"everything":{}}',
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"file": ["a"]}, "expected a column path of strings and optionally prompts, got file"),
        ({"path": ["a"], "prompts": ["{"]}, r'a: expected a list of objects, got "\{"'),
        ({"path": ["a"], "prompts": ["[]"]}, r"a: expected a list of objects, got \[\]"),
        (
            {"path": ["a"], "prompts": ['{"circle": 1}']},
            "a: object 0: expected some of pos_coords, labels, neg_coords, box",
        ),
        (
            {"path": ["a", "a"], "prompts": ['{"box": []}', None]},
            "listed twice with different prompts",
        ),
    ],
    ids=["no column", "bad JSON", "no prompts", "no such field", "two prompts"],
)
def test_invalid_list_is_reported(tmp_path, columns, message):
    pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    with pytest.raises(BatchError, match=message):
        find_images(str(tmp_path / "list.parquet"), "/nowhere", {})


def test_no_images_are_an_error(photos):
    with pytest.raises(BatchError, match="no PNG, JPEG or WebP files found"):
        find_images(f"{photos}/*.gif", "/nowhere", {})


def test_data_set_has_the_images_with_boxes_of_its_folder(photos, tmp_path):
    (photos / "linked.jpg").symlink_to("../secret.jpg")
    (tmp_path / "secret.jpg").touch()
    names = ["a.png", "b.JPG", "linked.jpg"]
    (photos / "boxes.csv").write_text(
        "image,x0,y0,x1,y1,label\n" + "".join(f"{name},1,2,3,4,cat\n" for name in names[1:])
    )
    (photos / "deep" / "old.csv").write_text("image\n")
    store, images, left_out = find_dataset(str(photos), f"{photos}/deep", "csv", None)
    ((path, image),) = images.items()
    assert (path, image.size, store.read(path)) == (f"{photos}/b.JPG", 5, b"b.JPG")
    assert json.loads(image.asked) == {
        "shapes": [[1, 2, 3, 4]],
        "relative": False,
        "size_wh": None,
        "objects": [["cat", {"id": 1}]],
    }
    ((failure),) = left_out
    assert (failure["line"], "linked.jpg" in failure["reason"]) == (3, True)


def test_rows_are_read_back(results, tmp_path):
    results.write(PARTS[0], [{**ROW, "masks": []}])
    results.write(PARTS[0], [{**ROW, "masks": []}, FAILED])  # replaces the first
    (tmp_path / "out" / "parts" / ".draft").write_bytes(b"half")
    first, second = results.rows()
    assert first == {**ROW, "error": None, "part": PARTS[0]}
    assert (second["path"], second["error"]) == ("/p/b.jpg", "no image")
    assert results.write_failures() == {"/p/b.jpg"}
    assert json.loads((tmp_path / "out" / "failures.json").read_text()) == [
        {"file": "/p/b.jpg", "reason": "no image"}
    ]
    left_out = {"file": "x.csv", "line": 2, "reason": "malformed"}
    assert results.write_failures([left_out]) == {"/p/b.jpg"}
    assert json.loads((tmp_path / "out" / "failures.json").read_text())[1:] == [left_out]


def test_failed_write_leaves_no_file(results, tmp_path):
    (tmp_path / "out" / "parts" / "part-1.parquet").mkdir(parents=True)
    with pytest.raises(BatchError, match=r"cannot write .*part-1"):
        results.write(PARTS[0], [ROW])
    assert [file.name for file in (tmp_path / "out" / "parts").iterdir()] == ["part-1.parquet"]


def test_removing_rows_deletes_empty_parts(results, tmp_path):
    results.write(PARTS[0], [ROW, FAILED])
    results.write(PARTS[1], [{**ROW, "path": "/p/c.jpg"}])
    results.remove_rows({PARTS[0]: {"/p/a.jpg"}, PARTS[1]: {"/p/c.jpg"}})
    assert [row["path"] for row in results.rows()] == ["/p/b.jpg"]
    (part,) = (tmp_path / "out" / "parts").iterdir()
    assert pq.read_table(part).schema.equals(SCHEMA)


def test_malformed_part_is_reported(results, tmp_path):
    results.store.write(f"{results.folder}/parts/{PARTS[0]}", b"PAR1 no more PAR1")
    with pytest.raises(BatchError, match=r"not a valid part of a batch, delete it.*part-1.parquet"):
        list(results.rows())
